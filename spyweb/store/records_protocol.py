"""The records of a store: the items that monitor jobs have found, and the hashes that they have seen."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from spyweb.model import JobId


class NewRecord(Struct, frozen=True, kw_only=True):
    """An item to be recorded unless it was seen before."""

    hash: bytes  # two items of a job are the same when theirs are
    fields: Mapping[str, str]  # in their order
    matches: Sequence[str] = ()  # keywords
    url: str = ""  # of the page
    found_ns: int | None = None  # when it was found by the program that spyweb replaces; None: now


class Record(Struct, frozen=True, kw_only=True):
    """An item as it was when it was new."""

    timestamp_ns: int  # also its id: no other record has it, and a later record has a greater one
    job: JobId
    hash: bytes
    fields: Mapping[str, str] = field(default_factory=dict)
    matches: tuple[str, ...] = ()
    url: str = ""

    @property
    def created_ms(self) -> int:
        return self.timestamp_ns // 1_000_000


class RecordFilter(Struct, frozen=True, kw_only=True):
    """The records that somebody looks for."""

    job: JobId | None = None
    text: str = ""  # in a field, a keyword or the address, whatever its case
    since_ns: int | None = None

    def matches(self, record: Record) -> bool:
        """Tell whether a record holds the text."""
        wanted = self.text.casefold()
        return not wanted or any(
            wanted in each.casefold() for each in (*record.fields.values(), *record.matches, record.url)
        )


class RecordPage(Struct, frozen=True, kw_only=True):
    """The records that were found, newest first, and where to go on."""

    records: Sequence[Record]
    before_ns: int | None  # None: there are no more


class Records(Protocol):
    """The records of every job, and the hashes of all items that it has seen, even if their records are pruned."""

    def add(self, job: JobId, items: Sequence[NewRecord], *, owed: bool = False) -> Future[list[int | None]]:
        """Record those items that are new, in one transaction and in this order.

        Return for each item the `timestamp_ns` of its record, or None if its hash was seen before, in the store or
        among the items before it.  With `owed` the new ones are to be announced: they stay owed, even over a crash,
        until Outbox.add settles them.  Raises StoreError, and records nothing, for text that is not valid Unicode.
        """

    def owed(self, job: JobId, limit: int) -> Future[list[Record]]:
        """Return the records that have not been announced yet, oldest first."""

    def move(self, old: JobId, new: JobId) -> Future[int]:
        """Give a renamed job its records and seen hashes; return how many records.  Doing so twice is harmless."""

    def list(self, job: JobId | None = None, *, limit: int = 30, before_ns: int | None = None) -> Future[list[Record]]:
        """Return records of one job, or of all, newest first."""

    def search(self, wanted: RecordFilter, *, limit: int, before_ns: int | None = None) -> Future[RecordPage]:
        """Return records that match, newest first.

        A page may hold fewer than there are, even none: then a part of the records was searched, and `before_ns`
        leads on.
        """

    def counts(self) -> Future[Mapping[JobId, int]]:
        """Return how many records each job has that has any."""

    async def prune(self, *, keep: int, older_than_ms: int | None, unseen_since_ms: int) -> int:
        """Delete records from before this moment, and those beyond `keep` per job that are not owed; return how many.

        Hashes stay known unless no item has had them since `unseen_since_ms`.  Works in slices, so that no write waits
        for long.
        """
