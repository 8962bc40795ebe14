"""What is set fires at its moment, and what is dropped never does.  On real time: the alarm is APScheduler's."""

from __future__ import annotations

import asyncio

from spyweb.clock import RealClock
from spyweb.model import JobId
from spyweb.scheduler.timers import ApschedulerTimers


async def test_the_timers_fire_at_the_moment_asked_for_and_stop_at_none() -> None:
    timers, fired = ApschedulerTimers(RealClock()), asyncio.Event()
    moments: list[int | None] = []

    def next_ms(now_ms: int) -> int | None:
        moments.append(None if fired.is_set() else now_ms + 20)
        return moments[-1]

    timers.set(JobId("prices"), next_ms, fired.set)
    timers.start()
    await fired.wait()
    await asyncio.sleep(0)
    assert timers.next_wake_ms is None
    timers.drop(JobId("prices"))
    timers.stop()


async def test_the_timers_fire_nothing_once_they_are_stopped() -> None:
    timers, fired = ApschedulerTimers(RealClock()), asyncio.Event()
    offsets = iter([-1000])
    timers.set(JobId("prices"), lambda now_ms: now_ms + next(offsets, 60_000), fired.set)
    timers.start()  # the first wake-up is on its way, and the job is due
    timers.stop()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not fired.is_set()


async def test_the_timers_wake_for_an_earlier_one_that_comes_later() -> None:
    timers, fired = ApschedulerTimers(RealClock()), asyncio.Event()
    timers.start()
    timers.set(JobId("tomorrow"), lambda now_ms: now_ms + 86_400_000, fired.clear)
    timers.set(JobId("soon"), lambda now_ms: now_ms + 20 if not fired.is_set() else None, fired.set)
    await fired.wait()
    timers.stop()


async def test_the_timers_forget_what_was_dropped_or_set_anew() -> None:
    timers, fired = ApschedulerTimers(RealClock()), asyncio.Event()
    seen: list[str] = []
    timers.set(JobId("dropped"), lambda now_ms: now_ms - 3, lambda: seen.append("dropped"))
    timers.set(JobId("replaced"), lambda now_ms: now_ms - 2, lambda: seen.append("replaced"))
    timers.set(JobId("replaced"), lambda now_ms: now_ms - 1 if not fired.is_set() else None, fired.set)
    timers.drop(JobId("dropped"))
    timers.start()
    await fired.wait()
    assert (seen, timers.next_wake_ms) == ([], None)
    timers.stop()


async def test_a_timer_that_raises_does_not_hold_up_the_others() -> None:
    timers, fired = ApschedulerTimers(RealClock()), asyncio.Event()

    def fail() -> None:
        raise ValueError("a bug")

    timers.set(JobId("faulty"), lambda now_ms: now_ms + (-1 if not fired.is_set() else 60_000), fail)
    timers.set(JobId("sound"), lambda now_ms: now_ms if not fired.is_set() else None, fired.set)
    timers.start()
    await fired.wait()
    assert timers.next_wake_ms is not None  # the faulty one is still to come
    timers.stop()
    assert timers.next_wake_ms is None  # and now it never is: nothing is late


async def test_the_timers_do_not_keep_what_was_set_anew_ever_again() -> None:
    timers = ApschedulerTimers(RealClock())
    for _ in range(10_000):
        timers.set(JobId("prices"), lambda now_ms: now_ms + 60_000, lambda: None)

    assert len(timers._heap) < 2_000
