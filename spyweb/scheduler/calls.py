"""Call functions at a moment or every so often, by APScheduler, which no other module knows.

APScheduler goes by the wall clock.  Whoever notices that it was set says so with `clock_was_set`: until then each call
comes later by as much as the clock was set back.
"""

from __future__ import annotations

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
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None})

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        """Make no call any more, and cancel those under way.  Stopping what was never started does nothing."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def call_at(self, name: str, at_ms: int, call: Callable[[], object]) -> None:
        """Call once, at this moment or as soon as possible after it, in place of an earlier order with that name."""
        self._scheduler.add_job(
            _make,
            DateTrigger(_moment(at_ms)),
            args=(call,),
            id=name,
            replace_existing=True,
            max_instances=1_000,  # one that has ended still counts for a moment: what is due by then would be lost
        )

    def call_every(self, name: str, seconds: float, call: Callable[[], Awaitable[None]]) -> None:
        """Call every so many seconds, for the first time after as many; never while the last call is under way."""
        trigger = IntervalTrigger(seconds=seconds, timezone=UTC)
        order = {"id": name, "name": name, "replace_existing": True, "max_instances": 1}
        self._scheduler.add_job(_make_and_await, trigger, args=(call,), **order)

    def next_ms(self, name: str) -> int | None:
        """Return when this call is to be made next; None where it never is."""
        job = self._scheduler.get_job(name) if self._scheduler.running else None
        return (job.next_run_time - EPOCH) // timedelta(milliseconds=1) if job else None

    def clock_was_set(self) -> None:
        """Go by what the wall clock shows now: call at once what is repeated, and what is due."""
        if not self._scheduler.running:
            return
        for job in self._scheduler.get_jobs():
            if isinstance(job.trigger, IntervalTrigger):
                job.modify(next_run_time=_moment(self._clock.now_ms()))
        self._scheduler.wakeup()


async def _make(call: Callable[[], object]) -> None:
    """Make a call; APScheduler would make it in a thread, since it is not async."""
    call()


async def _make_and_await(call: Callable[[], Awaitable[None]]) -> None:
    """Make a call; APScheduler would not see that a lambda or a method gives something to be awaited."""
    await call()


def _moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)
