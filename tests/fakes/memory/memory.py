"""A store of dictionaries, for tests and for runs that leave nothing behind; it passes the tests of the real one.

Every future is done when it is given.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import CursorMoved
from spyweb.histogram import SIZES, Histogram
from spyweb.model import Cursor, JobId, Outcome, Run, RunId, RunState
from spyweb.runs.drift import is_finding
from spyweb.runs.records import ended_run, is_aside
from spyweb.store.protocol import Begin, Change, End, NewRun, Recorded, SkippedRange, StoreStats
from spyweb.store.sqlite.runs import tell
from spyweb.store.values_protocol import NO_HISTORY, HistoryRules
from tests.fakes.memory.memory_audit import MemoryAudit
from tests.fakes.memory.memory_events import MemoryEvents
from tests.fakes.memory.memory_executor import ImmediateExecutor
from tests.fakes.memory.memory_incidents import MemoryIncidents
from tests.fakes.memory.memory_keys import MemoryKeys
from tests.fakes.memory.memory_locks import MemoryLocks
from tests.fakes.memory.memory_notices import MemoryNotices
from tests.fakes.memory.memory_outbox import MemoryOutbox
from tests.fakes.memory.memory_past_runs import MemoryPastRuns
from tests.fakes.memory.memory_records import MemoryRecords
from tests.fakes.memory.memory_requests import MemoryRequests
from tests.fakes.memory.memory_tasks import MemoryTasks
from tests.fakes.memory.memory_values import MemoryValues, Table


class MemoryRuns:
    def __init__(
        self,
        executor: ImmediateExecutor,
        locks: MemoryLocks,
        events: MemoryEvents,
        incidents: MemoryIncidents,
        requests: MemoryRequests,
        outbox: MemoryOutbox,
    ) -> None:
        self._outbox = outbox
        self._executor = executor
        self._incidents = incidents
        self._locks = locks
        self._events = events
        self._requests = requests
        self._runs: dict[RunId, Run] = {}  # by id, oldest first
        self._open_runs: dict[RunId, None] = {}  # ids, oldest first
        self._newest: dict[JobId, RunId] = {}
        self._claimed: set[tuple[JobId, int, int]] = set()  # job, due_ms, attempt
        self._last_id = 0
        self._cursors: dict[JobId, Cursor] = {}
        self._listeners: list[Recorded] = []

    def record(self, change: Change) -> Future[list[RunId | None]]:
        recorded = self._executor.write(self._record, change)
        if self._listeners:
            recorded.add_done_callback(partial(tell, list(self._listeners), change))
        return recorded

    def on_recorded(self, listen: Recorded) -> Callable[[], None]:
        self._listeners.append(listen)
        return lambda: self._listeners.remove(listen)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def all(self) -> list[Run]:
        """Return every run, oldest first."""
        return list(self._runs.values())

    def cursors(self) -> Future[dict[JobId, Cursor]]:
        return self._executor.read(self._cursors.copy)

    def open(self) -> Future[list[Run]]:
        return self._executor.read(self._open)

    def latest(self) -> Future[dict[JobId, Run]]:
        return self._executor.read(self._latest)

    def succeeded(self) -> Future[dict[JobId, int]]:
        return self._executor.read(self._succeeded)

    def started(self) -> Future[dict[JobId, int]]:
        return self._executor.read(self._started)

    async def prune(self, *, keep: int, older_than_ms: int) -> int:
        return await self._executor.write(self._prune, keep, older_than_ms)

    def find(self, run: RunId) -> Run | None:
        return self._runs.get(run)

    def _record(self, change: Change) -> list[RunId | None]:
        self._expect(change.expects)
        ended = {end.run for end in change.end if self._end(end)}
        for begin in change.begin:
            self._begin(begin)
        for skipped in change.skipped:
            if skipped.follows is None or skipped.follows in ended:
                self._skip(skipped)
        added = [self._add(run) if run.follows is None or run.follows in ended else None for run in change.new]
        self._cursors |= {cursor.job: cursor for cursor in change.cursors}
        heard = {job: at_ms for job, at_ms in change.heard.items() if job in self._cursors}
        self._cursors |= {job: replace(self._cursors[job], due_ms=at_ms) for job, at_ms in heard.items()}
        self._locks.ended(end.run for end in change.end)
        for wanted in change.dropped:
            self._events.clear(wanted.event, wanted.job, None)
        for end in change.end:
            if end.event is not None and end.run in self._runs:
                self._events.clear(end.event, self._runs[end.run].job, end.run)
        self._outbox.put([end.ping for end in change.end if end.ping and end.run in ended])
        self._incidents.ended([end.alert for end in change.end if end.alert and end.run in ended])
        self._incidents.tell_scripts(change.told)
        self._requests.drop_payloads(change.end, change.new)
        return added

    def _expect(self, expected: Mapping[JobId, Cursor | None]) -> None:
        for job, cursor in expected.items():
            if (found := self._cursors.get(job)) != cursor:
                raise CursorMoved(job, found)

    def _end(self, end: End) -> bool:
        """Whether it applied."""
        run = self._runs.get(end.run)
        applies = run is not None and run.state is not RunState.ENDED
        if run is not None and applies:
            self._put(ended_run(run, end))
        return applies

    def _begin(self, begin: Begin) -> None:
        run = self._runs.get(begin.run)
        if run and run.state is RunState.WAITING:
            started = replace(run, started_ms=begin.started_ms, generation=begin.generation)
            self._put(replace(started, state=RunState.RUNNING))

    def _skip(self, skipped: SkippedRange) -> None:
        newest = self._runs.get(self._newest.get(skipped.job, RunId(0)))
        if newest and is_same_range(newest, skipped):
            self._put(lengthen(newest, skipped))
            return
        self._put(
            Run(
                id=self._next_id(),
                job=skipped.job,
                state=RunState.ENDED,
                due_ms=skipped.first_due_ms,
                trigger={"type": skipped.trigger.value},
                ended_ms=skipped.at_ms,
                outcome=skipped.outcome,
                reason=skipped.reason,
                last_due_ms=skipped.last_due_ms,
                count=skipped.count,
            )
        )

    def _add(self, new: NewRun) -> RunId | None:
        if new.due_ms is not None and (new.job, new.due_ms, new.attempt) in self._claimed:
            return None
        run = Run(
            id=self._next_id(),
            job=new.job,
            state=new.state,
            attempt=new.attempt,
            due_ms=new.due_ms,
            trigger=dict(new.trigger),
            start_after_ms=new.start_after_ms,
            started_ms=new.started_ms,
            generation=new.generation,
        )
        self._put(run)
        if new.event is not None:
            self._events.claim(new.event, new.job, run.id)
        self._requests.keep(new, run.id)
        return run.id

    def _put(self, run: Run) -> None:
        self._runs[run.id] = run
        self._newest[run.job] = max(run.id, self._newest.get(run.job, run.id))
        if run.state is RunState.ENDED:
            self._open_runs.pop(run.id, None)
        else:
            self._open_runs[run.id] = None
        if run.due_ms is not None and run.last_due_ms is None:
            self._claimed.add((run.job, run.due_ms, run.attempt))

    def _drop(self, run: Run) -> None:
        del self._runs[run.id]
        if self._newest.get(run.job) == run.id:
            left = (other.id for other in self._runs.values() if other.job == run.job)
            self._newest[run.job] = max(left, default=RunId(0))
        if run.due_ms is not None and run.last_due_ms is None:
            self._claimed.discard((run.job, run.due_ms, run.attempt))

    def _next_id(self) -> RunId:
        self._last_id += 1
        return RunId(self._last_id)

    def _open(self) -> list[Run]:
        return [self._runs[number] for number in self._open_runs]

    def _latest(self) -> dict[JobId, Run]:
        ended = [run for run in self._true_runs() if run.state is RunState.ENDED and run.last_due_ms is None]
        return {run.job: run for run in sorted(ended, key=lambda run: run.outcome is not Outcome.SKIPPED)}

    def _succeeded(self) -> dict[JobId, int]:
        good = (run for run in self._true_runs() if run.outcome is Outcome.SUCCESS and run.ended_ms is not None)
        return {run.job: run.ended_ms or 0 for run in good if not is_finding(run)}

    def _started(self) -> dict[JobId, int]:
        return {run.job: run.started_ms for run in self._true_runs() if run.started_ms and not is_finding(run)}

    def _true_runs(self) -> Iterator[Run]:
        return (run for run in self._runs.values() if not is_aside(run.trigger))

    def _prune(self, keep: int, older_than_ms: int) -> int:
        kept: dict[JobId, int] = {}
        outdated = []
        good = {run.job: run.id for run in self._true_runs() if run.outcome is Outcome.SUCCESS and not is_finding(run)}
        for run in reversed(self._runs.values()):
            if run.ended_ms is None:
                continue
            kept[run.job] = kept.get(run.job, 0) + 1
            stays = run.id in (self._last_id, good.get(run.job))
            if (kept[run.job] > keep or run.ended_ms < older_than_ms) and not stays:
                outdated.append(run)
        for run in outdated:
            self._drop(run)
        return len(outdated)

    def _list(self, job: JobId | None, limit: int, before: RunId | None) -> list[Run]:
        newest_first = reversed(self._runs.values())
        wanted = (run for run in newest_first if job in (None, run.job) and (before is None or run.id < before))
        return list(islice(wanted, max(limit, 0)))

    def list(self, job: JobId | None = None, *, limit: int = 30, before: RunId | None = None) -> Future[list[Run]]:
        return self._executor.read(self._list, job, limit, before)


def is_same_range(run: Run, skipped: SkippedRange) -> bool:
    if run.last_due_ms is None or run.trigger != {"type": skipped.trigger.value}:
        return False
    return (run.outcome, run.reason) == (skipped.outcome, skipped.reason)


def lengthen(run: Run, skipped: SkippedRange) -> Run:
    first = skipped.first_due_ms if run.due_ms is None else run.due_ms
    last = skipped.last_due_ms if run.last_due_ms is None else run.last_due_ms
    return replace(
        run,
        due_ms=min(first, skipped.first_due_ms),
        last_due_ms=max(last, skipped.last_due_ms),
        count=run.count + skipped.count,
        ended_ms=skipped.at_ms,
    )


class MemoryStore:
    def __init__(self, clock: Clock, *, history: HistoryRules = NO_HISTORY) -> None:
        self._executor = ImmediateExecutor(clock)
        self.locks = MemoryLocks(self._executor)
        self.events = MemoryEvents(self._executor)
        table = Table(self._executor, self.events, history)
        self.values = MemoryValues(self._executor, table, self.locks)
        self.requests = MemoryRequests(self._executor)
        self.records = MemoryRecords(self._executor)
        self.outbox = MemoryOutbox(self._executor, self.records)
        self.incidents = MemoryIncidents(self._executor, self.outbox)
        self.notices = MemoryNotices(self._executor, self.outbox)
        self.runs = MemoryRuns(self._executor, self.locks, self.events, self.incidents, self.requests, self.outbox)
        self.past_runs = MemoryPastRuns(self._executor, self.runs.all)
        self.tasks = MemoryTasks(self._executor, self.runs.find)
        self.keys = MemoryKeys(self._executor)
        self.audit = MemoryAudit(self._executor)

    def stats(self) -> StoreStats:
        return StoreStats(
            path=":memory:",
            writes=self._executor.writes,
            batches=self._executor.writes,
            errors=0,
            size_bytes=0,
            last_commit_ms=self._executor.last_commit_ms,
            pending=0,
            oldest_pending_s=0.0,
        )

    def commit_sizes(self) -> Histogram:
        sizes = Histogram(SIZES)
        for _ in range(self._executor.writes):
            sizes.observe(1)
        return sizes

    def probe(self) -> Future[None]:
        return self._executor.read(lambda: None)

    def try_write(self) -> Future[None]:
        return self._executor.write(lambda: None)

    async def close(self) -> None:
        self._executor.closed = True
        self.incidents.close()
        self.notices.close()
