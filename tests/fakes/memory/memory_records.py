"""Records in a dictionary, and the hashes of what was seen."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from spyweb.model import JobId
from spyweb.store.records_protocol import NewRecord, Record, RecordFilter, RecordPage
from spyweb.store.sqlite.records import NS_IN_MS, STEP_NS, to_text
from tests.fakes.memory.memory_executor import ImmediateExecutor


class MemoryRecords:
    def __init__(self, executor: ImmediateExecutor) -> None:
        self._executor = executor
        self._records: dict[int, Record] = {}  # by timestamp_ns, oldest first
        self._seen: dict[tuple[JobId, bytes], int] = {}  # when last
        self._newest_ns = 0
        self._owed: set[int] = set()

    def add(self, job: JobId, items: Sequence[NewRecord], *, owed: bool = False) -> Future[list[int | None]]:
        return self._executor.write(self._add, job, items, owed)

    def owed(self, job: JobId, limit: int) -> Future[list[Record]]:
        return self._executor.read(self._find_owed, job, limit)

    def move(self, old: JobId, new: JobId) -> Future[int]:
        return self._executor.write(self._move, old, new)

    def settle(self, timestamps: Sequence[int]) -> None:
        """Mark records as announced, as part of a write of the outbox."""
        self._owed.difference_update(timestamps)

    def search(self, wanted: RecordFilter, *, limit: int, before_ns: int | None = None) -> Future[RecordPage]:
        return self._executor.read(self._search, wanted, limit, before_ns)

    def counts(self) -> Future[Mapping[JobId, int]]:
        return self._executor.read(lambda: dict(Counter(record.job for record in self._records.values())))

    async def prune(self, *, keep: int, older_than_ms: int | None, unseen_since_ms: int) -> int:
        return await self._executor.write(self._prune, keep, older_than_ms, unseen_since_ms)

    def _add(self, job: JobId, items: Sequence[NewRecord], owed: bool) -> list[int | None]:
        for item in items:
            to_text(dict(item.fields)), to_text(list(item.matches))  # refused before anything is recorded
        added = [self._add_one(job, item) for item in items]
        self._owed.update(timestamp_ns for timestamp_ns in added if timestamp_ns and owed)
        return added

    def _find_owed(self, job: JobId, limit: int) -> list[Record]:
        owed = (record for number, record in self._records.items() if number in self._owed and record.job == job)
        return list(islice(owed, limit))

    def _move(self, old: JobId, new: JobId) -> int:
        moved = [number for number, record in self._records.items() if record.job == old]
        self._records.update({number: replace(self._records[number], job=new) for number in moved})
        for seen in [seen for seen in self._seen if seen[0] == old]:
            self._seen.setdefault((new, seen[1]), self._seen.pop(seen))
        return len(moved)

    def _add_one(self, job: JobId, item: NewRecord) -> int | None:
        now_ms = self._executor.clock.now_ms()
        is_new = (job, item.hash) not in self._seen
        self._seen[job, item.hash] = now_ms
        if not is_new:
            return None
        timestamp_ns = self._free_moment(item, now_ms)
        self._records[timestamp_ns] = Record(
            timestamp_ns=timestamp_ns,
            job=job,
            hash=item.hash,
            fields=dict(item.fields),
            matches=tuple(item.matches),
            url=item.url,
        )
        if item.found_ns is not None:
            self._records = dict(sorted(self._records.items()))
        return timestamp_ns

    def _free_moment(self, item: NewRecord, now_ms: int) -> int:
        moment = item.found_ns
        if moment is None:
            moment = max(now_ms * NS_IN_MS, self._newest_ns + STEP_NS)
        while moment in self._records:
            moment += STEP_NS
        self._newest_ns = max(self._newest_ns, moment)
        return moment

    def _list(self, job: JobId | None, limit: int, before_ns: int | None) -> list[Record]:
        newest_first = reversed(self._records.values())
        wanted = (
            record
            for record in newest_first
            if job in (None, record.job) and (before_ns is None or record.timestamp_ns < before_ns)
        )
        return list(islice(wanted, max(limit, 0)))

    def _search(self, wanted: RecordFilter, limit: int, before_ns: int | None) -> RecordPage:
        found = [
            record
            for record in self._list(wanted.job, len(self._records), before_ns)
            if (wanted.since_ns is None or record.timestamp_ns >= wanted.since_ns) and wanted.matches(record)
        ]
        before = found[limit - 1].timestamp_ns if len(found) >= limit else None
        return RecordPage(records=found[:limit], before_ns=before)

    def _prune(self, keep: int, older_than_ms: int | None, unseen_since_ms: int) -> int:
        kept: Counter[JobId] = Counter()
        outdated = []
        for record in reversed(self._records.values()):
            kept[record.job] += 1
            is_old = older_than_ms is not None and record.timestamp_ns < older_than_ms * NS_IN_MS
            if is_old or (kept[record.job] > keep and record.timestamp_ns not in self._owed):
                outdated.append(record.timestamp_ns)
        for timestamp_ns in outdated:
            del self._records[timestamp_ns]
            self._owed.discard(timestamp_ns)
        self._seen = {seen: last_ms for seen, last_ms in self._seen.items() if last_ms >= unseen_since_ms}
        return len(outdated)

    def list(self, job: JobId | None = None, *, limit: int = 30, before_ns: int | None = None) -> Future[list[Record]]:
        return self._executor.read(self._list, job, limit, before_ns)
