"""Keep a timer for each job, to wake the scheduler when the job is due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

import structlog

from spyweb.clock import Clock
from spyweb.model import JobId
from spyweb.scheduler.calls import ScheduledCalls

log = structlog.get_logger()

TICK_MS = 15  # what comes due meanwhile shares a commit, and so do its ops: docs/design/0010
LONGEST_MS = 24 * 3600 * 1000  # to an alarm, which may come before anything is due: no calendar knows every due time
SPARE = 1_000  # timers that were dropped or replaced may stay on the heap, besides as many as there are
ALARM = "the jobs' timers"  # as APScheduler knows it


@dataclass(slots=True, eq=False)
class JobTimer:
    job: JobId
    next_ms: Callable[[int], int | None]
    fire: Callable[[], None]
    due_ms: int = 0


class Timers:
    """Keeps all timers on one heap, with one scheduled call, the alarm, for the earliest of them.

    A job of APScheduler for each timer would make wake-ups slower, and each timer larger.
    """

    def __init__(self, clock: Clock, calls: ScheduledCalls, tick_ms: int = TICK_MS) -> None:
        self._clock = clock
        self._calls = calls
        self._tick_ms = tick_ms
        self._timers: dict[JobId, JobTimer] = {}
        self._heap: list[tuple[int, int, JobTimer]] = []  # with timers that were dropped or replaced since
        self._numbers = count()  # two timers are never compared
        self._after_firing: Callable[[], None] = _nothing
        self._is_running = False
        self._is_firing = False
        self._alarm_ms: int | None = None  # what the alarm is set for
        self._earliest_alarm_ms = 0

    def start(self) -> None:
        self._is_running = True
        self._set_alarm()

    def stop(self) -> None:
        """Fire nothing more, at once, even where the alarm is on its way."""
        self._is_running = False

    def set(self, job: JobId, next_ms: Callable[[int], int | None], fire: Callable[[], None]) -> None:
        """Call `fire` at `next_ms(now)`, which is always later than now, and so on; None: not any more.

        Setting again replaces the timer.
        """
        timer = self._timers[job] = JobTimer(job, next_ms, fire)
        self._arm(timer, self._clock.now_ms())
        if len(self._heap) > 2 * len(self._timers) + SPARE:
            self._heap = [(timer.due_ms, next(self._numbers), timer) for timer in self._timers.values()]
            heapify(self._heap)
        self._set_alarm()

    def drop(self, job: JobId) -> None:
        self._timers.pop(job, None)

    def after_firing(self, callback: Callable[[], None]) -> None:
        """Register what is called at the end of each wake-up, when all that was due has fired."""
        self._after_firing = callback

    def clock_was_set(self) -> None:
        """Go by what the wall clock shows now, for timers and periodic calls."""
        self._earliest_alarm_ms = 0
        self._set_alarm()
        self._calls.clock_was_set()

    @property
    def next_wake_ms(self) -> int | None:
        """Return the earliest moment at which something is to fire: in the past when the timers are behind, None while
        they are not running."""
        heap = self._heap
        while heap and not self._is_set(heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap and self._is_running else None

    def _is_set(self, timer: JobTimer) -> bool:
        """Return whether the timer was neither dropped nor replaced."""
        return self._timers.get(timer.job) is timer

    def _arm(self, timer: JobTimer, now_ms: int) -> None:
        due_ms = timer.next_ms(now_ms)
        if due_ms is None:
            del self._timers[timer.job]
            return
        timer.due_ms = due_ms
        heappush(self._heap, (due_ms, next(self._numbers), timer))

    def _set_alarm(self) -> None:
        earliest_ms = self.next_wake_ms
        if earliest_ms is None or self._is_firing:
            return
        alarm_ms = min(max(earliest_ms, self._earliest_alarm_ms), self._clock.now_ms() + LONGEST_MS)
        if self._alarm_ms is None or alarm_ms < self._alarm_ms:
            self._alarm_ms = alarm_ms
            self._calls.call_at(ALARM, alarm_ms, self._fire_due)

    def _fire_due(self) -> None:
        if not self._is_running:
            return
        now_ms, self._alarm_ms = self._clock.now_ms(), None
        self._is_firing = True
        try:
            while (earliest_ms := self.next_wake_ms) is not None and earliest_ms <= now_ms:
                timer = heappop(self._heap)[2]
                try:
                    timer.fire()
                except Exception:
                    log.exception("a timer met a bug in spyweb", job=timer.job)
                if self._is_set(timer):
                    self._arm(timer, now_ms)
            self._after_firing()
        finally:
            self._is_firing = False
            self._earliest_alarm_ms = self._clock.now_ms() + self._tick_ms
            self._set_alarm()


def _nothing() -> None: ...
