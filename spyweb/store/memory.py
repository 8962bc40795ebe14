"""A store of dictionaries, for tests and for runs that leave nothing behind; it passes the tests of the real one.

Every future is done when it is given.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar, TypeVarTuple

from spyweb.clock import Clock
from spyweb.errors import StoreClosed, StoreError
from spyweb.model import Cursor, JobId, Run, RunId, RunState
from spyweb.store.entries import add
from spyweb.store.protocol import Begin, Change, End, NewRun, StoreStats, Stretch

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Desk:
    """Answers at once, and keeps count."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.closed = False
        self.writes = 0
        self.last_commit_ms: int | None = None

    def read(self, function: Callable[[*Ts], T], *arguments: *Ts) -> Future[T]:
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self.call(function, *arguments))
        except StoreError as error:
            future.set_exception(error)
        return future

    def write(self, function: Callable[[*Ts], T], *arguments: *Ts) -> Future[T]:
        future = self.read(function, *arguments)
        if future.exception() is None:
            self.writes += 1
            self.last_commit_ms = self.clock.now_ms()
        return future

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        if self.closed:
            raise StoreClosed
        return function(*arguments)


@dataclass(frozen=True, slots=True)
class Entry:
    value: bytes
    expires_ms: int | None = None


class MemoryEntries:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._entries: dict[tuple[str, bytes], Entry] = {}

    def get(self, namespace: str, key: bytes) -> Future[bytes | None]:
        return self._desk.read(self._find_value, namespace, key)

    def set(self, namespace: str, key: bytes, value: bytes) -> Future[None]:
        return self._desk.write(self._put, namespace, key, value)

    def delete(self, namespace: str, key: bytes) -> Future[None]:
        return self._desk.write(self._delete, namespace, key)

    def increment(self, namespace: str, key: bytes, default: int, delta: int) -> Future[int]:
        return self._desk.write(self._increment, namespace, key, default, delta)

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Future[bool]:
        return self._desk.write(self._expire, namespace, key, at_ms)

    def _find(self, namespace: str, key: bytes) -> Entry | None:
        entry = self._entries.get((namespace, key))
        if entry and entry.expires_ms is not None and entry.expires_ms <= self._desk.clock.now_ms():
            return None
        return entry

    def _find_value(self, namespace: str, key: bytes) -> bytes | None:
        entry = self._find(namespace, key)
        return entry.value if entry else None

    def _put(self, namespace: str, key: bytes, value: bytes) -> None:
        self._entries[namespace, key] = Entry(value)

    def _delete(self, namespace: str, key: bytes) -> None:
        self._entries.pop((namespace, key), None)

    def _increment(self, namespace: str, key: bytes, default: int, delta: int) -> int:
        entry = self._find(namespace, key)
        total = add(entry.value if entry else None, default, delta)
        self._entries[namespace, key] = Entry(b"%d" % total, entry.expires_ms if entry else None)
        return total

    def _expire(self, namespace: str, key: bytes, at_ms: int | None) -> bool:
        entry = self._find(namespace, key)
        if entry:
            self._entries[namespace, key] = replace(entry, expires_ms=at_ms)
        return entry is not None


class MemoryRuns:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._runs: dict[RunId, Run] = {}  # by id, oldest first
        self._open_runs: dict[RunId, None] = {}  # ids, oldest first
        self._newest: dict[JobId, RunId] = {}
        self._claimed: set[tuple[JobId, int, int]] = set()  # job, due_ms, attempt
        self._last_id = 0
        self._cursors: dict[JobId, Cursor] = {}

    def record(self, change: Change) -> Future[list[RunId | None]]:
        return self._desk.write(self._record, change)

    def cursors(self) -> Future[dict[JobId, Cursor]]:
        return self._desk.read(self._cursors.copy)

    def open(self) -> Future[list[Run]]:
        return self._desk.read(self._open)

    def latest(self) -> Future[dict[JobId, Run]]:
        return self._desk.read(self._latest)

    async def prune(self, *, keep: int, older_than_ms: int) -> int:
        return await self._desk.write(self._prune, keep, older_than_ms)

    def _record(self, change: Change) -> list[RunId | None]:
        for end in change.end:
            self._end(end)
        for begin in change.begin:
            self._begin(begin)
        for stretch in change.stretches:
            self._stretch(stretch)
        added = [self._add(run) for run in change.new]
        self._cursors |= {cursor.job: cursor for cursor in change.cursors}
        return added

    def _end(self, end: End) -> None:
        run = self._runs.get(end.run)
        if run and run.state is not RunState.ENDED:
            self._put(end_of(run, end))

    def _begin(self, begin: Begin) -> None:
        run = self._runs.get(begin.run)
        if run and run.state is RunState.WAITING:
            started = replace(run, started_ms=begin.started_ms, generation=begin.generation)
            self._put(replace(started, state=RunState.RUNNING))

    def _stretch(self, stretch: Stretch) -> None:
        newest = self._runs.get(self._newest.get(stretch.job, RunId(0)))
        if newest and is_same_stretch(newest, stretch):
            self._put(lengthen(newest, stretch))
            return
        self._put(
            Run(
                id=self._next_id(),
                job=stretch.job,
                state=RunState.ENDED,
                due_ms=stretch.first_due_ms,
                trigger={"type": "schedule"},
                ended_ms=stretch.at_ms,
                outcome=stretch.outcome,
                reason=stretch.reason,
                last_due_ms=stretch.last_due_ms,
                count=stretch.count,
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
        if run.due_ms is not None and run.last_due_ms is None:
            self._claimed.discard((run.job, run.due_ms, run.attempt))

    def _next_id(self) -> RunId:
        self._last_id += 1
        return RunId(self._last_id)

    def _open(self) -> list[Run]:
        return [self._runs[number] for number in self._open_runs]

    def _latest(self) -> dict[JobId, Run]:
        ended = (run for run in self._runs.values() if run.state is RunState.ENDED and run.last_due_ms is None)
        return {run.job: run for run in ended}

    def _prune(self, keep: int, older_than_ms: int) -> int:
        kept: dict[JobId, int] = {}
        outdated = []
        for run in reversed(self._runs.values()):
            if run.ended_ms is None:
                continue
            kept[run.job] = kept.get(run.job, 0) + 1
            if (kept[run.job] > keep or run.ended_ms < older_than_ms) and run.id != self._last_id:
                outdated.append(run)
        for run in outdated:
            self._drop(run)
        return len(outdated)

    def _list(self, job: JobId | None, limit: int, before: RunId | None) -> list[Run]:
        newest_first = reversed(self._runs.values())
        wanted = (run for run in newest_first if job in (None, run.job) and (before is None or run.id < before))
        return list(islice(wanted, max(limit, 0)))

    def list(self, job: JobId | None = None, *, limit: int = 30, before: RunId | None = None) -> Future[list[Run]]:
        return self._desk.read(self._list, job, limit, before)


def end_of(run: Run, end: End) -> Run:
    return replace(
        run,
        state=RunState.ENDED,
        ended_ms=end.ended_ms,
        outcome=end.outcome,
        failure=end.failure,
        reason=end.reason,
        traceback=end.traceback,
        cpu_ms=end.cpu_ms,
        storage_errors=end.storage_errors,
    )


def is_same_stretch(run: Run, stretch: Stretch) -> bool:
    return run.last_due_ms is not None and (run.outcome, run.reason) == (stretch.outcome, stretch.reason)


def lengthen(run: Run, stretch: Stretch) -> Run:
    first = stretch.first_due_ms if run.due_ms is None else run.due_ms
    last = stretch.last_due_ms if run.last_due_ms is None else run.last_due_ms
    return replace(
        run,
        due_ms=min(first, stretch.first_due_ms),
        last_due_ms=max(last, stretch.last_due_ms),
        count=run.count + stretch.count,
        ended_ms=stretch.at_ms,
    )


class MemoryStore:
    def __init__(self, clock: Clock) -> None:
        self._desk = Desk(clock)
        self.entries = MemoryEntries(self._desk)
        self.runs = MemoryRuns(self._desk)

    def stats(self) -> StoreStats:
        return StoreStats(
            path=":memory:",
            writes=self._desk.writes,
            batches=self._desk.writes,
            errors=0,
            size_bytes=0,
            last_commit_ms=self._desk.last_commit_ms,
            pending=0,
            oldest_pending_s=0.0,
        )

    async def close(self) -> None:
        self._desk.closed = True
