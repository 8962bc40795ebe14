"""Who wakes the scheduler.  APScheduler does the waking; this is the only module that knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Protocol

import structlog
from apscheduler.executors.base import BaseExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.base import STATE_RUNNING
from apscheduler.triggers.base import BaseTrigger

from spyweb.clock import Clock
from spyweb.model import JobId

log = structlog.get_logger()

TICK = 0.015  # seconds; what comes due meanwhile shares a commit, and so do its ops: docs/design/0010
WAKE_AT_LEAST = 30.0  # seconds; wall clock and timers meet again where the clock has jumped
SPARE = 1_000  # timers that were dropped or replaced may stay on the heap, besides as many as there are

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Timers(Protocol):
    """One for each job, set and dropped by its id."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def set(self, job: JobId, next_ms: Callable[[int], int | None], fire: Callable[[], None]) -> None:
        """Call `fire` at `next_ms(now)`, which is always later than now, and so on; None: not any more.

        Setting again replaces the timer.
        """

    def drop(self, job: JobId) -> None: ...

    def after_firing(self, callback: Callable[[], None]) -> None:
        """Call this at the end of each wake-up, when all that was due has fired."""

    @property
    def next_wake_ms(self) -> int | None:
        """The earliest moment at which something is to fire; in the past when the timers are behind, but None once they
        are stopped."""


class _Asked(BaseTrigger):  # type: ignore[misc]  # apscheduler has no types
    """Asks when it is due next."""

    def __init__(self, next_ms: Callable[[int], int]) -> None:
        self._next_ms = next_ms

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime:
        return _moment(self._next_ms(-(-(now - EPOCH) // timedelta(milliseconds=1))))


def _moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


class _Direct(BaseExecutor):  # type: ignore[misc]  # apscheduler has no types
    """Calls straight through: a thread or a task per wake-up would cost more than the wake-up."""

    def submit_job(self, job: Any, _run_times: Sequence[datetime]) -> None:
        job.func()

    def _do_submit_job(self, *_: object) -> None:
        raise NotImplementedError


class _Coarse(AsyncIOScheduler):  # type: ignore[misc]  # apscheduler has no types
    """Wakes at most every TICK and at least every WAKE_AT_LEAST."""

    def _start_timer(self, wait_seconds: float | None) -> None:
        if self.state == STATE_RUNNING:  # not by a wake-up that was on its way when it was stopped
            super()._start_timer(WAKE_AT_LEAST if wait_seconds is None else min(max(wait_seconds, TICK), WAKE_AT_LEAST))


@dataclass(slots=True, eq=False)
class _Timer:
    job: JobId
    next_ms: Callable[[int], int | None]
    fire: Callable[[], None]
    due_ms: int = 0


class ApschedulerTimers:
    """All timers on one heap, and one job of APScheduler, which wakes for the earliest of them.

    With a job of APScheduler's for each timer a wake-up cost 25 us more, and a timer 1 KB.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[JobId, _Timer] = {}
        self._heap: list[tuple[int, int, _Timer]] = []  # with timers that were dropped or replaced since
        self._numbers = count()  # two timers are never compared
        self._after_firing: Callable[[], None] = _nothing
        self._is_firing = False
        self._is_stopped = False
        self._scheduler = _Coarse(timezone=UTC, executors={"default": _Direct()})
        self._alarm = self._scheduler.add_job(
            self._fire_due, _Asked(self._earliest_ms), misfire_grace_time=None, coalesce=True, max_instances=1_000_000
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        self._is_stopped = True
        if self._scheduler.running:
            self._scheduler.pause()  # at once: a wake-up may be on its way, before the shutdown
            self._scheduler.shutdown(wait=False)

    def set(self, job: JobId, next_ms: Callable[[int], int | None], fire: Callable[[], None]) -> None:
        timer = self._timers[job] = _Timer(job, next_ms, fire)
        earliest_ms = self.next_wake_ms
        self._arm(timer, self._clock.now_ms())
        if len(self._heap) > 2 * len(self._timers) + SPARE:
            self._tidy()
        is_first = job in self._timers and (earliest_ms is None or timer.due_ms < earliest_ms)
        if is_first and self._scheduler.running and not self._is_firing:
            self._alarm.modify(next_run_time=_moment(timer.due_ms))

    def drop(self, job: JobId) -> None:
        self._timers.pop(job, None)

    def after_firing(self, callback: Callable[[], None]) -> None:
        self._after_firing = callback

    @property
    def next_wake_ms(self) -> int | None:
        heap = self._heap
        while heap and not self._is_set(heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap and not self._is_stopped else None

    def _is_set(self, timer: _Timer) -> bool:
        """Neither dropped nor replaced."""
        return self._timers.get(timer.job) is timer

    def _arm(self, timer: _Timer, now_ms: int) -> None:
        due_ms = timer.next_ms(now_ms)
        if due_ms is None:
            del self._timers[timer.job]
            return
        timer.due_ms = due_ms
        heappush(self._heap, (due_ms, next(self._numbers), timer))

    def _tidy(self) -> None:
        self._heap = [(timer.due_ms, next(self._numbers), timer) for timer in self._timers.values()]
        heapify(self._heap)

    def _earliest_ms(self, now_ms: int) -> int:
        """Never None, which would end the alarm."""
        earliest_ms = self.next_wake_ms
        return max(now_ms + round(WAKE_AT_LEAST * 1000) if earliest_ms is None else earliest_ms, now_ms + 1)

    def _fire_due(self) -> None:
        now_ms = self._clock.now_ms()
        self._is_firing = True
        try:
            while (earliest_ms := self.next_wake_ms) is not None and earliest_ms <= now_ms:
                self._fire(heappop(self._heap)[2], now_ms)
        finally:
            self._is_firing = False
            self._after_firing()

    def _fire(self, timer: _Timer, now_ms: int) -> None:
        try:
            timer.fire()
        except Exception:
            log.exception("a timer met a bug in spyweb", job=timer.job)
        if self._is_set(timer):
            self._arm(timer, now_ms)


def _nothing() -> None: ...
