"""Records in a dictionary, and the hashes of what was seen."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from spyweb.model import JobId
from spyweb.store.memory_desk import Desk
from spyweb.store.protocol import NewRecord, Record
from spyweb.store.records import NS_IN_MS, STEP_NS, to_text


class MemoryRecords:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._records: dict[int, Record] = {}  # by timestamp_ns, oldest first
        self._seen: dict[tuple[JobId, bytes], int] = {}  # when last
        self._newest_ns = 0

    def add(self, job: JobId, items: Sequence[NewRecord]) -> Future[list[int | None]]:
        return self._desk.write(self._add, job, items)

    async def prune(self, *, keep: int, older_than_ms: int | None, unseen_since_ms: int) -> int:
        return await self._desk.write(self._prune, keep, older_than_ms, unseen_since_ms)

    def _add(self, job: JobId, items: Sequence[NewRecord]) -> list[int | None]:
        for item in items:
            to_text(dict(item.fields)), to_text(list(item.matches))  # refused before anything is recorded
        return [self._add_one(job, item) for item in items]

    def _add_one(self, job: JobId, item: NewRecord) -> int | None:
        now_ms = self._desk.clock.now_ms()
        is_new = (job, item.hash) not in self._seen
        self._seen[job, item.hash] = now_ms
        if not is_new:
            return None
        self._newest_ns = max(now_ms * NS_IN_MS, self._newest_ns + STEP_NS)
        self._records[self._newest_ns] = Record(
            timestamp_ns=self._newest_ns,
            job=job,
            hash=item.hash,
            fields=dict(item.fields),
            matches=tuple(item.matches),
            url=item.url,
        )
        return self._newest_ns

    def _list(self, job: JobId | None, limit: int, before_ns: int | None) -> list[Record]:
        newest_first = reversed(self._records.values())
        wanted = (
            record
            for record in newest_first
            if job in (None, record.job) and (before_ns is None or record.timestamp_ns < before_ns)
        )
        return list(islice(wanted, max(limit, 0)))

    def _prune(self, keep: int, older_than_ms: int | None, unseen_since_ms: int) -> int:
        kept: Counter[JobId] = Counter()
        outdated = []
        for record in reversed(self._records.values()):
            kept[record.job] += 1
            is_old = older_than_ms is not None and record.timestamp_ns < older_than_ms * NS_IN_MS
            if is_old or kept[record.job] > keep:
                outdated.append(record.timestamp_ns)
        for timestamp_ns in outdated:
            del self._records[timestamp_ns]
        self._seen = {seen: last_ms for seen, last_ms in self._seen.items() if last_ms >= unseen_since_ms}
        return len(outdated)

    def list(self, job: JobId | None = None, *, limit: int = 30, before_ns: int | None = None) -> Future[list[Record]]:
        return self._desk.read(self._list, job, limit, before_ns)
