"""Call functions at a moment or at an interval, through APScheduler, which no other module knows.

APScheduler goes by the wall clock.  Whoever notices that it was set says so with `clock_was_set`: until then each call
comes later by as much as the clock was set back.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Task
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from spyweb.clock import Clock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduledCalls:
    """Wraps one AsyncIOScheduler.  Each call has a name; a call that is late is made as soon as possible, once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: set[Task[object]] = set()
        self._is_stopping = False
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None})

    def start(self) -> None:
        self._scheduler.start()

    async def stop(self) -> None:
        """Make no call any more, and wait until those under way are cancelled; harmless before the start.

        APScheduler would cancel them itself, but not wait, and log each as an error.
        """
        if not self._scheduler.running or self._is_stopping:
            return
        self._is_stopping = True
        self._scheduler.pause()
        await self._clock.sleep(0)  # what has just been ordered of the loop begins
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._scheduler.shutdown(wait=False)

    def call_at(self, name: str, at_ms: int, call: Callable[[], object]) -> None:
        """Call once, at this moment or as soon as possible after it, in place of an earlier order with that name."""
        self._scheduler.add_job(
            self._make,
            DateTrigger(_moment(at_ms), timezone=UTC),
            args=(call,),
            id=name,
            replace_existing=True,
            max_instances=1_000,  # one that has ended still counts for a moment: what is due by then would be lost
        )

    def call_every(self, name: str, seconds: float, call: Callable[[], Awaitable[None]]) -> None:
        """Call every so many seconds, for the first time after as many; never while the last call is under way."""
        trigger = IntervalTrigger(seconds=seconds, timezone=UTC)
        order = {"id": name, "name": name, "replace_existing": True, "max_instances": 1}
        self._scheduler.add_job(self._make_and_await, trigger, args=(call,), **order)

    def next_ms(self, name: str) -> int | None:
        """Return when this call is to be made next; None where it never is."""
        job = self._scheduler.get_job(name) if self._scheduler.running else None
        return (job.next_run_time - EPOCH) // timedelta(milliseconds=1) if job else None

    def clock_was_set(self) -> None:
        """Go by the new wall clock: call at once what is periodic, and what is due."""
        if not self._scheduler.running:
            return
        for job in self._scheduler.get_jobs():
            if isinstance(job.trigger, IntervalTrigger):
                job.modify(next_run_time=_moment(self._clock.now_ms()))
        self._scheduler.wakeup()

    async def _make(self, call: Callable[[], object]) -> None:
        """Make a call in the loop's thread; APScheduler would use another thread, since the call is not async."""
        if not self._is_stopping:
            call()

    async def _make_and_await(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call and wait for its end, in the task that APScheduler has made for it."""
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


def _moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)
