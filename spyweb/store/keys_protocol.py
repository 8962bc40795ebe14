"""The keys of a store: who may come in over HTTP, and the sessions of browsers that signed in with one.

Neither a token nor a cookie is stored, only the hash of each: whoever reads the database, or a copy of it, can't come
in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NewType, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from asyncio import Future  # a command that asks a daemon does without

KeyId = NewType("KeyId", int)


class Scope(StrEnum):
    """Something that a key permits; `run` and `state` include `read`, `admin` all."""

    READ = "read"
    RUN = "run"
    STATE = "state"
    ADMIN = "admin"


class NewKey(Struct, frozen=True, kw_only=True):
    name: str
    handle: str  # the part of the token by which the key is found: no secret
    hash: bytes  # of the token
    scopes: tuple[Scope, ...]
    jobs: tuple[str, ...] = ()  # patterns of the jobs that it is limited to; none: all
    created_ms: int


class AccessKey(NewKey, frozen=True, kw_only=True):
    id: KeyId
    used_ms: int | None = None  # when it was last used, as far as that is stored


class BrowserSession(Struct, frozen=True, kw_only=True):
    hash: bytes  # of the cookie
    key: KeyId | None  # None: it signed in with SPYWEB_API_KEY
    created_ms: int
    seen_ms: int  # when its browser last asked for something, as far as that is stored


class AccessKeys(Protocol):
    def all(self) -> Future[list[AccessKey]]:
        """Return the keys, by name."""

    def add(self, key: NewKey) -> Future[AccessKey | None]:
        """Add a key; give None where one has this name or handle."""

    def remove(self, name: str) -> Future[bool]:
        """Remove a key, and the sessions that began with it; give False where there is none."""

    def used(self, key: KeyId, at_ms: int) -> Future[None]:
        """Note that a key was used."""

    def sessions(self) -> Future[list[BrowserSession]]:
        """Return the sessions, the one seen last at the end."""

    def put_session(self, session: BrowserSession) -> Future[None]:
        """Add a session, or replace it; nothing where its key is gone."""

    def end_sessions(self, hashes: list[bytes]) -> Future[None]: ...

    def link_key(self) -> Future[bytes]:
        """Return the secret that signs links in messages, the same for ever; it is made at the first call."""
