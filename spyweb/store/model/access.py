"""The keys of a store and the sessions of browsers, of which only hashes are stored, and the audit trail."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NewType

from msgspec import Struct

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


LINES_KEPT: Final = 10_000  # as the trigger of the table says


class NewAuditLine(Struct, frozen=True, kw_only=True):
    """Something that somebody has done, or tried to, through the API or the dashboard."""

    at_ms: int
    who: str  # the name of a key, or of the local user
    source: str  # how they came in
    action: str  # the method, and the address with names in place of what varies
    job: str = ""
    target: str = ""  # what it was about, where that is no job
    status: int  # of the answer
    address: str = ""  # of the connection
    times: int = 1  # how often it happened


class AuditLine(NewAuditLine, frozen=True, kw_only=True):
    id: int
