"""Records as people and machines are shown them.

As JSON a record has each field at top level, beside spyweb's own keys; a field whose name is one of these keys is still
in `fields`.

As CSV a cell is the field's text, unchanged.  In a table for a spreadsheet, a text that the program would read as a
formula gets an apostrophe before it; numbers don't.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from spyweb.model import JobId

if TYPE_CHECKING:
    from spyweb.store.model.records import Record

NOTHING = "\N{EN DASH}"  # in place of an empty text
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = ("date_time", "job"), ("keywords", "page_url")
OTHERS = "other_fields"  # the fields without a column, as JSON
OLD = "old"  # the tracked fields before they changed, as JSON
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[.,][0-9]+)*|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?%?")


class RecordView(Struct, frozen=True, kw_only=True):
    """A record under the names that SpyWeb's pages read."""

    fields: dict[str, str]
    match_key: tuple[str, ...]  # keywords
    page_url: str
    job_id: JobId
    date_time: str  # ISO 8601, UTC
    timestamp: int  # nanoseconds since 1970: unique, and what `after` takes
    hash: str  # in hex
    old: dict[str, str] = {}  # tracked fields before they changed; empty: the item was new

    def texts(self) -> list[str]:
        """List the fields' texts; of one that has changed, the old text and the new one."""
        return [show_change(self, name) for name in self.fields]


class RecordsPage(Struct, frozen=True, kw_only=True):
    """A page of one job's records, newest first."""

    records: list[RecordView]
    limit: int
    has_more: bool
    next_after: int | None  # the value of `after` for the next page


def view_record(record: Record) -> RecordView:
    moment = EPOCH + timedelta(milliseconds=record.created_ms)
    return RecordView(
        fields=dict(record.fields),
        match_key=record.matches,
        page_url=record.url,
        job_id=record.job,
        date_time=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        timestamp=record.timestamp_ns,
        hash=record.hash.hex(),
        old=dict(record.old),
    )


def flatten(view: RecordView) -> dict[str, object]:
    """Return the record as it goes into JSON."""
    whole: dict[str, object] = msgspec.to_builtins(view)
    return {**view.fields, **whole}


def by_job(views: Sequence[RecordView]) -> dict[str, list[dict[str, object]]]:
    grouped: dict[str, list[dict[str, object]]] = {}
    for view in views:
        grouped.setdefault(view.job_id, []).append(flatten(view))
    return grouped


def column_names(declared: Iterable[str], first: Sequence[RecordView]) -> list[str]:
    """Return the columns: the fields that the job declares, and the fields of its newest records."""
    return list(dict.fromkeys([*declared, *(name for view in first for name in view.fields)]))


def csv_header(names: Sequence[str], *, for_spreadsheet: bool = False) -> str:
    return csv_line((*FIRST, *names, *LAST, OTHERS, OLD), for_spreadsheet=for_spreadsheet)


def csv_row(names: Sequence[str], view: RecordView, *, for_spreadsheet: bool = False) -> str:
    others = {name: value for name, value in view.fields.items() if name not in names}
    cells = [view.date_time, view.job_id, *(view.fields.get(name, "") for name in names)]
    cells += [" ".join(view.match_key), view.page_url, json_or_empty(others), json_or_empty(view.old)]
    return csv_line(cells, for_spreadsheet=for_spreadsheet)


def json_or_empty(texts: Mapping[str, str]) -> str:
    return msgspec.json.encode(texts).decode() if texts else ""


def show_change(view: RecordView, name: str) -> str:
    """Return a field's text; of one that has changed, the old text and the new one."""
    text = view.fields.get(name, "")
    return f"{view.old[name] or NOTHING} → {text or NOTHING}" if name in view.old else text


def csv_line(cells: Iterable[str], *, for_spreadsheet: bool = False) -> str:
    """Return one line by RFC 4180."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow([_harmless(cell) for cell in cells] if for_spreadsheet else cells)
    return text.getvalue()


def _harmless(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell
