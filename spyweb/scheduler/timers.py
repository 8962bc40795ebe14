"""Wake for each job when it is due, through APScheduler: no other module knows it.

Each job with a schedule is one of APScheduler's jobs.  That library decides when to wake; the job's cursor then decides
which due times have come.  APScheduler uses the wall clock.  After a jump of the clock `clock_was_set` must be called:
until then each call is late by as much as the clock was set back.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo

import structlog
from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from spyweb.clock import Clock
from spyweb.model import JobId

log = structlog.get_logger()

TICK_MS = 15  # jobs that come due within it share a commit, and so do their ops: docs/design/0010
LAST_MS = 253_402_214_400_000  # a day before the last moment of a datetime
MILLISECOND = timedelta(milliseconds=1)


class JobTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Asks for the next moment of one job, None once it has none."""

    def __init__(self, next_moment: Callable[[datetime], datetime | None], fire: Callable[[], None]) -> None:
        self._next_moment = next_moment
        self._fire = fire
        self._has_fired = False

    def fire(self) -> None:
        self._has_fired = True
        self._fire()

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return a moment after now; None where APScheduler asks, before a fire, for further moments up to now.

        One fire covers all due times.
        """
        if not self._has_fired:
            return None
        self._has_fired = False
        return self._next_moment(now)


class InLoopExecutor(BaseExecutor):  # type: ignore[misc]
    """Calls at once, in the loop's thread, so that one wake-up fires all due jobs together."""

    def __init__(self, fire: Callable[[Job], None]) -> None:
        super().__init__()
        self._fire = fire

    def submit_job(self, job: Job, run_times: Sequence[datetime]) -> None:
        self._fire(job)

    def _do_submit_job(self, job: Job, run_times: Sequence[datetime]) -> None:
        raise NotImplementedError


class Timers:
    """Wraps one AsyncIOScheduler.  A late call is made as soon as possible, once."""

    def __init__(
        self, clock: Clock, *, tick_ms: int = TICK_MS, zone: tzinfo = UTC, loop: AbstractEventLoop | None = None
    ) -> None:
        self._clock = clock
        self._tick_ms = tick_ms
        self._epoch = datetime(1970, 1, 1, tzinfo=zone)
        self._jobs = MemoryJobStore()
        self.after_firing: Callable[[], None] = lambda: None  # after each wake-up, when all due jobs have fired
        self._has_fired = False  # in this wake-up
        self._is_running = False
        self._fires_jobs = True
        self._scheduler = AsyncIOScheduler(
            timezone=zone,
            event_loop=loop,
            jobstores={"default": self._jobs},
            executors={"default": InLoopExecutor(self._fire)},
            job_defaults={"coalesce": True, "misfire_grace_time": None},
        )
        self._scheduler.start(paused=True)

    def start(self) -> None:
        self._is_running = True
        self._scheduler.resume()

    def stop(self) -> None:
        """Fire no more jobs, even where a wake-up is on its way."""
        self._fires_jobs = False
        self._scheduler.remove_all_jobs()

    def set(self, job: JobId, next_ms: Callable[[int], int | None], fire: Callable[[], None]) -> None:
        """Call `fire` repeatedly, each time at `next_ms(now)`, which is always later than now; None ends the timer.

        Setting it again replaces the timer.  `fire` itself may neither set nor drop one.
        """

        def next_moment(now: datetime) -> datetime | None:
            due_ms = next_ms((now - self._epoch) // MILLISECOND)
            return None if due_ms is None else self._moment(min(due_ms, LAST_MS), self._tick_ms)

        first = next_moment(self._moment(self._clock.now_ms())) if self._fires_jobs else None
        if first is None:
            self.drop(job)
            return
        trigger = JobTrigger(next_moment, fire)
        self._scheduler.add_job(trigger.fire, trigger, id=job, name=job, next_run_time=first, replace_existing=True)

    def drop(self, job: JobId) -> None:
        with suppress(JobLookupError):
            self._scheduler.remove_job(job)

    @property
    def next_wake_ms(self) -> int | None:
        """Return when a job is due next: in the past when the timers are behind, None where no job has a timer."""
        moment = self._jobs.get_next_run_time() if self._is_running else None
        return (moment - self._epoch) // MILLISECOND if moment else None

    def clock_was_set(self) -> None:
        """Follow the new wall clock: fire all due jobs at once."""
        self._scheduler.wakeup()

    def _moment(self, ms: int, tick_ms: int = 1) -> datetime:
        """Return a moment as a datetime for APScheduler, rounded up to a tick."""
        return self._epoch + -(-ms // tick_ms) * tick_ms * MILLISECOND

    def _fire(self, job: Job) -> None:
        if not self._fires_jobs:
            return
        if not self._has_fired:
            self._has_fired = True
            asyncio.get_running_loop().call_soon(self._end_wake_up)
        try:
            job.func()
        except Exception:
            log.exception("internal error in a timer", job=job.id)

    def _end_wake_up(self) -> None:
        self._has_fired = False
        self.after_firing()
