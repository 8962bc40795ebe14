"""The audit trail of a store: what clients have done, who and when; only the newest lines are kept."""

from __future__ import annotations

from asyncio import Future
from typing import Final, Protocol

from msgspec import Struct

LINES_KEPT: Final = 10_000  # as the trigger of the table says


class NewAuditLine(Struct, frozen=True, kw_only=True):
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


class AuditTrail(Protocol):
    def add(self, line: NewAuditLine) -> Future[None]: ...

    def list(self, *, limit: int, before: int | None = None) -> Future[list[AuditLine]]:
        """Return lines, newest first, older than the one with this id."""
