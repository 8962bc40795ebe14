"""What is set fires at its moment, and what is dropped never does.  On the fake clock; test_calls.py has real time."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from spyweb.model import JobId
from spyweb.scheduler.calls import ScheduledCalls
from spyweb.scheduler.timers import LONGEST_MS, TICK_MS, Timers
from tests.fakes.calls import FakeCalls
from tests.fakes.clock import FakeClock

PRICES, NEWS = JobId("prices"), JobId("news")


class TimersHarness:
    """Timers, and who has fired when, in milliseconds."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.calls = FakeCalls(self.clock)
        self.timers = Timers(self.clock, self.calls)
        self.fired: list[tuple[JobId, int]] = []
        self.began_ms = self.clock.now_ms()
        self.calls.start()

    def set(self, job: JobId, *moments_ms: int) -> None:
        """Have a job fire at these moments, counted from the beginning."""
        moments = iter(moments_ms)

        def next_ms(_now_ms: int) -> int | None:
            moment = next(moments, None)
            return None if moment is None else self.began_ms + moment

        self.timers.set(job, next_ms, lambda: self.fired.append((job, self.clock.now_ms() - self.began_ms)))


@pytest.fixture
def harness() -> TimersHarness:
    return TimersHarness()


async def test_the_timers_fire_at_the_moments_asked_for_and_stop_at_none(harness: TimersHarness) -> None:
    harness.set(PRICES, 20, 100)
    harness.timers.start()
    await harness.clock.turn(60)
    assert harness.fired == [(PRICES, 20), (PRICES, 100)]
    assert harness.timers.next_wake_ms is None
    harness.timers.drop(PRICES)


async def test_the_timers_fire_nothing_once_they_are_stopped(harness: TimersHarness) -> None:
    harness.set(PRICES, -1000)
    harness.timers.start()  # the first wake-up is on its way, and the job is due
    harness.timers.stop()
    await harness.clock.turn(1)
    assert harness.fired == []


async def test_the_timers_wake_for_an_earlier_one_that_comes_later(harness: TimersHarness) -> None:
    harness.timers.start()
    harness.set(NEWS, 86_400_000)
    harness.set(PRICES, 20)
    await harness.clock.turn(1)
    assert harness.fired == [(PRICES, 20)]


async def test_the_timers_wake_at_most_once_a_tick_and_fire_together_what_is_due_by_then(
    harness: TimersHarness,
) -> None:
    wakes: list[int] = []
    harness.timers.after_firing(lambda: wakes.append(harness.clock.now_ms() - harness.began_ms))
    harness.set(PRICES, 100, 101, 116)
    harness.set(NEWS, 110)
    harness.timers.start()
    await harness.clock.turn(1)
    assert wakes == [100, 100 + TICK_MS, 100 + 2 * TICK_MS]
    assert harness.fired == [(PRICES, 100), (PRICES, 115), (NEWS, 115), (PRICES, 130)]


async def test_a_timer_may_be_set_for_a_moment_that_no_calendar_knows(harness: TimersHarness) -> None:
    calls = ScheduledCalls(harness.clock)
    timers = Timers(harness.clock, calls)
    timers.set(PRICES, lambda _: 10**18, lambda: None)
    timers.start()
    assert timers.next_wake_ms == 10**18

    harness.set(PRICES, 3 * LONGEST_MS)
    harness.timers.start()
    await harness.clock.turn(4 * LONGEST_MS / 1000)
    assert harness.fired == [(PRICES, 3 * LONGEST_MS)]


async def test_a_timer_that_is_set_while_others_fire_is_not_forgotten(harness: TimersHarness) -> None:
    harness.timers.after_firing(lambda: harness.set(NEWS, 50) if len(harness.fired) == 1 else None)
    harness.set(PRICES, 10)
    harness.timers.start()
    await harness.clock.turn(1)
    assert harness.fired == [(PRICES, 10), (NEWS, 50)]


async def test_the_timers_forget_what_was_dropped_or_set_anew(harness: TimersHarness) -> None:
    harness.set(NEWS, -3)
    harness.set(PRICES, -2)
    harness.set(PRICES, -1)
    harness.timers.drop(NEWS)
    harness.timers.start()
    await harness.clock.turn(1)
    assert (harness.fired, harness.timers.next_wake_ms) == ([(PRICES, 0)], None)


async def test_a_timer_that_raises_does_not_hold_up_the_others(harness: TimersHarness) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    offsets = iter([-1])
    harness.timers.set(NEWS, lambda now_ms: now_ms + next(offsets, 60_000), fail)
    harness.set(PRICES, 0)
    with capture_logs() as lines:
        harness.timers.start()
        await harness.clock.turn(1)
    assert [(line["event"], line["job"]) for line in lines] == [("a timer met a bug in spyweb", NEWS)]
    assert harness.fired == [(PRICES, 0)]
    assert harness.timers.next_wake_ms is not None  # the faulty one is still to come
    harness.timers.stop()
    assert harness.timers.next_wake_ms is None  # and now it never is: nothing is late


async def test_a_wake_up_whose_end_raises_does_not_end_the_timers(harness: TimersHarness) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    harness.timers.after_firing(fail)
    harness.set(PRICES, 10, 50)
    harness.timers.start()
    with pytest.raises(ValueError, match="a bug"):
        await harness.clock.turn(0.02)
    harness.timers.after_firing(lambda: None)
    await harness.clock.turn(1)
    assert harness.fired == [(PRICES, 10), (PRICES, 50)]


async def test_a_clock_that_was_set_back_delays_nothing_once_that_is_known(harness: TimersHarness) -> None:
    harness.set(PRICES, 1000)
    harness.timers.start()
    harness.clock.jump(-3600)
    harness.set(PRICES, -3_599_000)
    harness.timers.clock_was_set()
    await harness.clock.turn(2)
    assert [job for job, _ in harness.fired] == [PRICES]


def test_the_timers_do_not_keep_what_was_set_anew_ever_again(harness: TimersHarness) -> None:
    for _ in range(10_000):
        harness.timers.set(PRICES, lambda now_ms: now_ms + 60_000, lambda: None)

    assert len(harness.timers._heap) < 2_000
