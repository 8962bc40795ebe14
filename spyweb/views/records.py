"""Records as people and machines are shown them.

As JSON a record has each field at top level, and beside them what spyweb knows of it; where a field has the name of one
of these, it is still found in `fields`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from spyweb.model import JobId

if TYPE_CHECKING:
    from spyweb.store.model.records import Record

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecordView(Struct, frozen=True, kw_only=True):
    """A record under the names that SpyWeb's pages read."""

    fields: dict[str, str]
    match_key: tuple[str, ...]  # keywords
    page_url: str
    job_id: JobId
    date_time: str  # ISO 8601, UTC
    timestamp: int  # nanoseconds since 1970: unique, and what `after` takes
    hash: str  # in hex


class RecordsPage(Struct, frozen=True, kw_only=True):
    """A page of one job's records, newest first."""

    records: list[RecordView]
    limit: int
    has_more: bool
    next_after: int | None  # what `after` takes for the next page


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
