"""The records of a store: what monitor jobs have found, and what they have seen."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spyweb.model import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """An item to be recorded, unless it was seen before."""

    hash: bytes  # two items of a job are the same when theirs are
    fields: Mapping[str, str]  # in their order
    matches: Sequence[str] = ()  # keywords
    url: str = ""  # of the page
    found_ns: int | None = None  # when it was found, by a program that was here before; None: now


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An item, as it was when it was new."""

    timestamp_ns: int  # its id too: no other record has it, and a later one has a greater one
    job: JobId
    hash: bytes
    fields: Mapping[str, str] = field(default_factory=dict)
    matches: tuple[str, ...] = ()
    url: str = ""

    @property
    def created_ms(self) -> int:
        return self.timestamp_ns // 1_000_000


class Records(Protocol):
    """The records of every job, and the hashes of all items that it has seen, those of pruned records included."""

    def add(self, job: JobId, items: Sequence[NewRecord], *, owed: bool = False) -> Future[list[int | None]]:
        """Record the items that are new, all in one transaction and in this order.

        Gives for each item the `timestamp_ns` of its record; None where its hash was seen before, in the store or
        among the items before it.  With `owed` the new ones are to be announced: they stay owed, over a crash too,
        until Outbox.add settles them.  Raises StoreError, and records nothing, for text that is no Unicode.
        """

    def owed(self, job: JobId, limit: int) -> Future[list[Record]]:
        """Return the records that are still to be announced, oldest first."""

    def move(self, old: JobId, new: JobId) -> Future[int]:
        """Give a renamed job its records, and what it has seen; gives how many records.  Doing so twice is no error."""

    def list(self, job: JobId | None = None, *, limit: int = 30, before_ns: int | None = None) -> Future[list[Record]]:
        """Return records of one job, or of all together, newest first."""

    async def prune(self, *, keep: int, older_than_ms: int | None, unseen_since_ms: int) -> int:
        """Delete records from before the moment, and those beyond `keep` a job that are not owed; gives how many.

        What was seen stays seen, unless no item has had its hash since `unseen_since_ms`.  Works in slices, and holds
        up no write for long.
        """
