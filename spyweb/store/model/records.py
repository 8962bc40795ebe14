"""The records of a store: the items that monitor jobs have found, and the hashes that they have seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from spyweb.model import JobId


class NewRecord(Struct, frozen=True, kw_only=True):
    """An item to be recorded unless it was seen before, with the same tracked fields."""

    hash: bytes  # two items of a job are the same when theirs are
    fields: Mapping[str, str]  # in their order
    matches: Sequence[str] = ()  # keywords
    url: str = ""  # of the page
    found_ns: int | None = None  # when it was found by the program that spyweb replaces; None: now
    tracked: Mapping[str, str] | None = None  # fields to compare with those seen last; None: nothing is tracked
    former_hash: bytes = b""  # of the item where nothing was tracked; an item seen under it is not new


class FirstCycle(Struct, frozen=True, kw_only=True):
    """The address of a monitor whose first cycle that finds something is to be silent."""

    hash: bytes  # of the address, kept among the hashes of seen items
    is_last: bool  # no more items of this cycle follow


class Record(Struct, frozen=True, kw_only=True):
    """An item as it was when it was new, or when a tracked field had changed."""

    timestamp_ns: int  # also its id: no other record has it, and a later record has a greater one
    job: JobId
    hash: bytes
    fields: Mapping[str, str] = field(default_factory=dict)
    matches: tuple[str, ...] = ()
    url: str = ""
    old: Mapping[str, str] = field(default_factory=dict)  # tracked fields before they changed; empty: it was new
    is_pending: bool = False  # it is to be announced

    @property
    def created_ms(self) -> int:
        return self.timestamp_ns // 1_000_000


class RecordFilter(Struct, frozen=True, kw_only=True):
    """The filter of a search for records."""

    job: JobId | None = None
    text: str = ""  # in a field, a keyword or the address, in any case
    since_ns: int | None = None

    def matches(self, record: Record) -> bool:
        """Tell whether a record holds the text."""
        wanted = self.text.casefold()
        return not wanted or any(
            wanted in each.casefold()
            for each in (*record.fields.values(), *record.old.values(), *record.matches, record.url)
        )


class RecordPage(Struct, frozen=True, kw_only=True):
    """The records that were found, newest first, and where to go on."""

    records: Sequence[Record]
    before_ns: int | None  # None: this was the last page
