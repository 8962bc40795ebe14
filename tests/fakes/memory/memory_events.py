"""The outbox of changes, in dictionaries."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from spyweb.model import JobId, RunId
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.sqlite.changes import ChangeNote, EntryContext
from spyweb.store.sqlite.subscriptions import Subscribers, Subscriptions, event_of
from spyweb.store.values_protocol import BEFORE_ALL, ChangeEvent, Origin, Position, WantedChange, Watch
from tests.fakes.memory.memory_executor import ImmediateExecutor


class MemoryEvents:
    def __init__(self, executor: ImmediateExecutor) -> None:
        self._executor = executor
        self._events: dict[int, ChangeEvent] = {}
        self._wanted: dict[Position, RunId | None] = {}  # the run that is claimed for it
        self._last_id = 0
        self._callbacks: list[Callable[[], None]] = []
        self.subscriptions = Subscriptions()
        self._subscribers = Subscribers()

    def watch(self, watches: Sequence[Watch], *, all_known: bool = False) -> None:
        self.subscriptions = Subscriptions(watches)

    def wanted(self, limit: int, *, after: Position = BEFORE_ALL) -> Future[list[WantedChange]]:
        return self._executor.read(self._find_wanted, limit, after)

    def find(self, event: int) -> Future[ChangeEvent | None]:
        return self._executor.read(self._events.get, event)

    def on_committed(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def follow(self, watch: Watch, listen: Callable[[ChangeEvent], None]) -> Callable[[], None]:
        return self._subscribers.add(watch, listen)

    def add(self, namespace: str, key: bytes, notes: Sequence[ChangeNote], origin: Origin) -> None:
        matter = EntryContext(PLAIN, namespace, key, self._executor.clock.now_ms())
        watched = self.subscriptions.of_key(namespace, key)
        kept = [note for note in notes if watched.get(note.kind)]
        for note in kept:
            self._last_id += 1
            self._events[self._last_id] = replace(event_of(matter, note, origin), id=self._last_id)
            self._wanted |= {(job, self._last_id): None for job in watched[note.kind]}
        notices = self._subscribers.notices(namespace)
        if notices:
            notices.note(matter, notes, origin)
            self._executor.later(partial(self._subscribers.tell, notices))
        if kept:
            for callback in self._callbacks:
                self._executor.later(callback)

    def claim(self, event: int, job: JobId, run: RunId) -> None:
        if (job, event) in self._wanted:
            self._wanted[job, event] = run

    def clear(self, event: int, job: JobId, run: RunId | None) -> None:
        if (job, event) in self._wanted and self._wanted[job, event] == run:
            del self._wanted[job, event]
        if not any(number == event for _, number in self._wanted):
            self._events.pop(event, None)

    def _find_wanted(self, limit: int, after: Position) -> list[WantedChange]:
        waiting = sorted(each for each, run in self._wanted.items() if run is None and each > after)
        return [self._wanted_change(JobId(job), event) for job, event in waiting[: max(limit, 0)]]

    def _wanted_change(self, job: JobId, event: int) -> WantedChange:
        found = self._events[event]
        return WantedChange(
            job=job,
            event=event,
            namespace=found.namespace,
            key=found.key,
            kind=found.kind,
            at_ms=found.at_ms,
            origin=found.origin,
        )
