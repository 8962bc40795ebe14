"""Timers on the fake clock, proven by the same contract test as those of APScheduler."""

from __future__ import annotations

from collections.abc import Callable

from spyweb.clock import Handle
from spyweb.model import JobId
from tests.fakes.clock import FakeClock


class FakeTimers:
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._entries: dict[JobId, tuple[Callable[[int], int | None], Callable[[], None]]] = {}
        self._handles: dict[JobId, Handle] = {}
        self._started = False
        self._after_firing: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._started = True
        for job in list(self._entries):
            self._arm(job)

    def stop(self) -> None:
        self._started = False
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def set(self, job: JobId, next_ms: Callable[[int], int | None], fire: Callable[[], None]) -> None:
        self.drop(job)
        self._entries[job] = (next_ms, fire)
        if self._started:
            self._arm(job)

    def drop(self, job: JobId) -> None:
        self._entries.pop(job, None)
        handle = self._handles.pop(job, None)
        if handle:
            handle.cancel()

    def after_firing(self, callback: Callable[[], None]) -> None:
        self._after_firing = callback

    @property
    def next_wake_ms(self) -> int | None:
        return None

    def _arm(self, job: JobId) -> None:
        now_ms = self._clock.now_ms()
        moment = self._entries[job][0](now_ms)
        if moment is None:
            self.drop(job)
            return
        self._handles[job] = self._clock.call_later((moment - now_ms) / 1000, lambda: self._fire(job))

    def _fire(self, job: JobId) -> None:
        self._entries[job][1]()
        self._after_firing()
        if job in self._entries:
            self._arm(job)
