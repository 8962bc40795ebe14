"""Search, count and export records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.model import JobId
from spyweb.runs.live import LiveJobs
from spyweb.store.model.records import RecordFilter
from spyweb.store.sqlite.records import Records
from spyweb.subjects.records.views import RecordView, column_names, csv_header, csv_row, view_record

SEARCH_S = 0.2  # after which a search returns what it has found so far, and where to continue
PAGE = 500  # records of a table that are read at a time


class FoundRecords(Struct, frozen=True, kw_only=True):
    """Records, newest first, and where the next page begins."""

    records: list[RecordView]
    before_ns: int | None  # None: this is the last page


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSearch:
    records: Records
    live: LiveJobs
    clock: Clock

    async def search(self, wanted: RecordFilter, *, limit: int, before_ns: int | None = None) -> FoundRecords:
        """Return records that match, newest first; when the search takes long, those found so far."""
        began, found = self.clock.monotonic(), list[RecordView]()
        while True:
            page = await self.records.search(wanted, limit=limit - len(found), before_ns=before_ns)
            found += map(view_record, page.records)
            before_ns = page.before_ns
            if before_ns is None or len(found) >= limit or self.clock.monotonic() - began > SEARCH_S:
                return FoundRecords(records=found, before_ns=before_ns)

    async def newest(self, job: JobId | None, *, limit: int, before_ns: int | None) -> list[RecordView]:
        """Return records, newest first, of one job or of all together."""
        return [view_record(record) for record in await self.records.list(job, limit=limit, before_ns=before_ns)]

    async def counts(self) -> Mapping[JobId, int]:
        """Return the number of records of each job that has any."""
        return await self.records.counts()

    async def table(self, wanted: RecordFilter, *, for_spreadsheet: bool = False) -> AsyncIterator[str]:
        """Yield all records that match as lines of CSV, newest first, a page of them at a time."""
        first = await self.search(replace(wanted, text=""), limit=PAGE)
        job = self.live.find(wanted.job) if wanted.job else None
        declared = [field.name for field in job.spec.monitor.fields] if job and job.spec.monitor else []
        names = column_names(declared, first.records)
        yield csv_header(names, for_spreadsheet=for_spreadsheet)
        before_ns: int | None = None
        while True:
            page = await self.search(wanted, limit=PAGE, before_ns=before_ns)
            if page.records:
                yield "".join(csv_row(names, view, for_spreadsheet=for_spreadsheet) for view in page.records)
            before_ns = page.before_ns
            if before_ns is None:
                return
