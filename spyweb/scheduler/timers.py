"""Wake for each job when it is due, and for each of the daemon's chores, through APScheduler: no other module knows it.

Each job with a schedule is one of APScheduler's jobs.  That library decides when to wake; the job's cursor then decides
which due times have come.  APScheduler uses the wall clock.  After a jump of the clock `clock_was_set` must be called:
until then each call is late by as much as the clock was set back.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, CancelledError, Task
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo

import structlog
from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from spyweb.clock import Clock
from spyweb.model import JobId

log = structlog.get_logger()

TICK_MS = 15  # jobs that come due within it share a commit, and so do their ops: docs/design/0010
JOBS = "jobs"  # the name of their store and of their executor
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
        self._is_stopping = False
        self._under_way: set[Task[object]] = set()  # chores
        self._scheduler = AsyncIOScheduler(
            timezone=zone,
            event_loop=loop,
            jobstores={JOBS: self._jobs},
            executors={JOBS: InLoopExecutor(self._fire)},
            job_defaults={"coalesce": True, "misfire_grace_time": None},
        )
        self._scheduler.start(paused=True)

    def start(self) -> None:
        self._is_running = True
        self._scheduler.resume()

    def stop_jobs(self) -> None:
        """Fire no more jobs, even where a wake-up is on its way; the chores continue."""
        self._fires_jobs = False
        self._scheduler.remove_all_jobs(JOBS)

    async def stop(self) -> None:
        """Make no more calls, and wait until the chores under way are cancelled.

        APScheduler itself would cancel them without waiting, and log each as an error.
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        self._scheduler.pause()
        await self._clock.sleep(0)  # lets callbacks that are already scheduled begin
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._scheduler.shutdown(wait=False)

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
        order = {"id": job, "name": job, "jobstore": JOBS, "executor": JOBS, "replace_existing": True}
        self._scheduler.add_job(trigger.fire, trigger, next_run_time=first, **order)

    def drop(self, job: JobId) -> None:
        with suppress(JobLookupError):
            self._scheduler.remove_job(job, JOBS)

    def call_every(self, name: str, seconds: float, call: Callable[[], Awaitable[None]]) -> None:
        """Call every so many seconds, first after one such interval; never while the previous call is under way."""
        trigger = IntervalTrigger(seconds=seconds, timezone=self._epoch.tzinfo)
        order = {"id": name, "name": name, "replace_existing": True, "max_instances": 1}
        first = self._moment(self._clock.now_ms() + round(seconds * 1000))
        self._scheduler.add_job(self._make_and_await, trigger, args=(call,), next_run_time=first, **order)

    def next_ms(self, name: str) -> int | None:
        """Return when this chore is called next; None where it is not scheduled."""
        job = None if self._is_stopping else self._scheduler.get_job(name, "default")
        return (job.next_run_time - self._epoch) // MILLISECOND if job else None

    @property
    def next_wake_ms(self) -> int | None:
        """Return when a job is due next: in the past when the timers are behind, None where no job has a timer."""
        moment = self._jobs.get_next_run_time() if self._is_running else None
        return (moment - self._epoch) // MILLISECOND if moment else None

    def clock_was_set(self) -> None:
        """Follow the new wall clock: call every chore and fire all due jobs at once."""
        for chore in self._scheduler.get_jobs("default"):
            chore.modify(next_run_time=self._moment(self._clock.now_ms()))
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

    async def _make_and_await(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call and wait for its end, in the task that APScheduler made for it."""
        task = asyncio.current_task()
        if task is None or self._is_stopping:
            return
        self._under_way.add(task)
        try:
            await call()
        except CancelledError:
            if not self._is_stopping:
                raise
        finally:
            self._under_way.discard(task)
