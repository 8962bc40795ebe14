"""Keys, as people and machines are shown them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spyweb.web.access.keys import PREFIX

if TYPE_CHECKING:
    from spyweb.store.model.access import AccessKey


class KeyView(Struct, frozen=True, kw_only=True):
    name: str
    begins: str  # the beginning of its token, to recognise it by
    scopes: tuple[str, ...]
    jobs: tuple[str, ...]  # patterns of the jobs that it is limited to; none: all
    created_ms: int
    used_ms: int | None  # when it was last used, to the minute


class MadeKey(Struct, frozen=True, kw_only=True):
    """Shows a new key, with its token: nobody is ever shown that again."""

    key: KeyView
    token: str


class KeyRevoked(Struct, frozen=True, kw_only=True):
    name: str
    revoked: bool = True


class Myself(Struct, frozen=True, kw_only=True):
    """Shows who is asking, and what that may do."""

    name: str
    source: str  # "key", "session", "socket", "loopback"
    rights: tuple[str, ...]
    jobs: tuple[str, ...]  # patterns of the jobs that it is limited to; none: all


def view_key(key: AccessKey) -> KeyView:
    return KeyView(
        name=key.name,
        begins=f"{PREFIX}{key.handle}",
        scopes=tuple(scope.value for scope in key.scopes),
        jobs=key.jobs,
        created_ms=key.created_ms,
        used_ms=key.used_ms,
    )
