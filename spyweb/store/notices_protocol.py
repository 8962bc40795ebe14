"""The notices of a store: what scripts tell people by `notify{…}`, on its way into the outbox."""

from __future__ import annotations

from asyncio import Future
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from spyweb.incidents.policy import Level
from spyweb.model import JobId, RunId


class Notice(Struct, frozen=True, kw_only=True):
    """One thing that a script tells people."""

    job: JobId
    run: RunId | None  # None: the server's own, which is not on record
    channel: str  # the name of an alert channel
    level: Level
    title: str  # one line
    text: str = ""
    key: bytes = b""  # told once a day; empty: as often as it is said
    day: str = ""  # today, by the daemon's time zone
    held_until_ms: int | None = None  # the end of quiet hours that hold it


class NoticeFate(StrEnum):
    """The fate of a notice, which is committed, whatever it is."""

    QUEUED = "queued"
    HELD = "held"  # until quiet hours end
    GATHERED = "gathered"  # there were too many in a minute: one message tells of them
    REPEATED = "repeated"  # its key was told today
    BELOW = "below"  # the level that its channel is told: it is not sent


class ScriptNotices(Protocol):
    def add(self, notice: Notice) -> Future[NoticeFate]:
        """Put a notice into the outbox, unless its key was told today; in one transaction with the note of that.

        A job has ten messages a minute.  What is more, and what quiet hours hold, is gathered: one message tells of all
        of it, at the end of the minute or of the quiet hours.
        """

    async def prune(self, *, older_than_ms: int) -> None:
        """Forget keys that were last told before this moment."""
