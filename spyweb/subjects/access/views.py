"""Keys, as people and machines are shown them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spyweb.views.runs import copied
from spyweb.web.access.keys import PREFIX

if TYPE_CHECKING:
    from spyweb.store.model.access import AccessKey


class KeyView(Struct, frozen=True, kw_only=True):
    name: str
    begins: str  # the beginning of its token, which identifies it
    scopes: tuple[str, ...]
    jobs: tuple[str, ...]  # patterns of the jobs that it is limited to; empty: all
    created_ms: int
    used_ms: int | None  # when it was last used, to the minute


class MadeKey(Struct, frozen=True, kw_only=True):
    """A new key with its token, which is never shown again."""

    key: KeyView
    token: str
    is_first: bool = False  # before it, every client on this machine had access without a key


class KeyRevoked(Struct, frozen=True, kw_only=True):
    name: str
    revoked: bool = True


class Myself(Struct, frozen=True, kw_only=True):
    """The client's own name and rights."""

    name: str
    source: str  # "key", "session", "socket", "loopback"
    rights: tuple[str, ...]
    jobs: tuple[str, ...]  # patterns of the jobs that it is limited to; empty: all


def view_key(key: AccessKey) -> KeyView:
    return copied(KeyView, key, begins=f"{PREFIX}{key.handle}", scopes=tuple(scope.value for scope in key.scopes))
