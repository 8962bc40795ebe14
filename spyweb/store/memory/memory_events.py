"""The outbox of changes, in a dictionary."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from spyweb.model import JobId, RunId
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.memory.memory_desk import Desk
from spyweb.store.protocol import ChangeEvent, Origin, Watch
from spyweb.store.sqlite.changes import ChangeNote
from spyweb.store.sqlite.changes import Desk as Matter
from spyweb.store.sqlite.following import Subscribers, event_of
from spyweb.store.sqlite.watching import Subscriptions


class MemoryEvents:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._events: dict[int, ChangeEvent] = {}  # oldest first
        self._started: dict[int, dict[JobId, RunId]] = {}  # by event, as long as it is kept: each job's latest run
        self._delivered: set[int] = set()  # kept for the runs that they started
        self._last_id = 0
        self._callbacks: list[Callable[[], None]] = []
        self.subscriptions = Subscriptions()
        self._subscribers = Subscribers()

    def watch(self, watches: Sequence[Watch]) -> None:
        self.subscriptions = Subscriptions(watches)

    def pending(self, limit: int = 1000, *, after: int = 0) -> Future[list[ChangeEvent]]:
        return self._desk.read(self._pending, limit, after)

    def find(self, event: int) -> Future[ChangeEvent | None]:
        return self._desk.read(self._find, event)

    def on_committed(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def follow(self, watch: Watch, hear: Callable[[ChangeEvent], None]) -> Callable[[], None]:
        return self._subscribers.add(watch, hear)

    def add(self, namespace: str, key: bytes, noted: Sequence[ChangeNote], origin: Origin) -> None:
        matter = Matter(PLAIN, namespace, key, self._desk.clock.now_ms())
        wanted = self.subscriptions.of_key(namespace, key)
        told = [note for note in noted if note.kind in wanted]
        for note in told:
            self._last_id += 1
            self._events[self._last_id] = replace(event_of(matter, note, origin), id=self._last_id)
        notices = self._subscribers.notices(namespace)
        if notices:
            notices.note(matter, noted, origin)
            self._desk.later(partial(self._subscribers.tell, notices))
        if told:
            for callback in self._callbacks:
                self._desk.later(callback)

    def note_started(self, event: int, job: JobId, run: RunId) -> None:
        self._started.setdefault(event, {})[job] = run

    def deliver(self, events: Iterable[int], is_open: Callable[[RunId], bool]) -> None:
        for event in events:
            self._delivered.add(event)
            self.end_if_over(event, is_open)

    def end_if_over(self, event: int, is_open: Callable[[RunId], bool]) -> None:
        """Forget it once it is delivered and the runs that it started have ended."""
        if event not in self._delivered or any(map(is_open, self._started.get(event, {}).values())):
            return
        self._delivered.discard(event)
        self._events.pop(event, None)
        self._started.pop(event, None)

    def _pending(self, limit: int, after: int) -> list[ChangeEvent]:
        wanted = (number for number in self._events if number > after and number not in self._delivered)
        return [event for number in islice(wanted, max(limit, 0)) if (event := self._find(number))]

    def _find(self, event: int) -> ChangeEvent | None:
        found = self._events.get(event)
        return found and replace(found, started=frozenset(self._started.get(event, ())))
