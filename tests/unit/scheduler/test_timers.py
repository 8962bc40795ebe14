"""What is set fires at its moment, and what is dropped never does: on real time, and on the fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from zoneinfo import ZoneInfoNotFoundError

import pytest
from structlog.testing import capture_logs

from spyweb.clock import Clock, RealClock
from spyweb.model import JobId
from spyweb.scheduler.timers import TICK_MS, Timers
from tests.fakes.clock import FakeClock, settle
from tests.fakes.timers import FakeTimers

PRICES, NEWS = JobId("prices"), JobId("news")
DAY_MS = 86_400_000


class TimersHarness:
    """Timers, and who has fired when, in milliseconds since the beginning."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.clock = clock
        self.timers = timers
        self.began_ms = clock.now_ms()
        self.fired: list[tuple[JobId, int]] = []

    def set(self, job: JobId, *moments_ms: int) -> None:
        """Have a job fire at these moments."""
        moments = iter(moments_ms)

        def next_ms(now_ms: int) -> int | None:
            moment = next(moments, None)
            return None if moment is None else max(self.began_ms + moment, now_ms + 1)

        self.timers.set(job, next_ms, lambda: self.fired.append((job, self.clock.now_ms() - self.began_ms)))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if isinstance(self.clock, FakeClock):
                await self.clock.turn(self.clock.next_in or 0)
            else:
                await self.clock.sleep(0.001)


def fake_harness(tick_ms: int = 1) -> TimersHarness:
    clock = FakeClock()
    return TimersHarness(clock, FakeTimers(clock, tick_ms))


@pytest.fixture
async def harness() -> TimersHarness:
    return fake_harness()


@pytest.fixture(params=["real", "fake"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[TimersHarness]:
    made = fake_harness() if request.param == "fake" else TimersHarness(RealClock(), Timers(RealClock()))
    yield made
    made.timers.stop()


async def turn(harness: TimersHarness, seconds: float) -> None:
    assert isinstance(harness.clock, FakeClock)
    await harness.clock.turn(seconds)


async def test_a_job_fires_at_its_moments_and_is_forgotten_after_the_last(either: TimersHarness) -> None:
    either.set(PRICES, 30, 90)
    before = either.timers.next_wake_ms
    either.timers.start()
    assert before is None, "nothing fires before the start"
    assert 0 <= (either.timers.next_wake_ms or 0) - either.began_ms - 30 < TICK_MS
    await either.until(lambda: len(either.fired) == 2)
    late = [at_ms - due_ms for (_, at_ms), due_ms in zip(either.fired, (30, 90), strict=True)]
    assert min(late) >= 0
    await settle()
    assert either.timers.next_wake_ms is None
    either.timers.drop(PRICES)


async def test_what_comes_due_within_a_tick_fires_together() -> None:
    harness = fake_harness(TICK_MS)
    ends: list[int] = []
    harness.timers.after_firing = lambda: ends.append(len(harness.fired))
    harness.timers.start()
    base = -harness.began_ms % TICK_MS  # the grid is that of the clock
    harness.set(PRICES, base + 1, base + TICK_MS + 1)
    harness.set(NEWS, base + TICK_MS - 1)
    await turn(harness, 1)
    assert (len(harness.fired), ends) == (3, [2, 3])
    assert {at_ms for _, at_ms in harness.fired} == {base + TICK_MS, base + 2 * TICK_MS}


@pytest.mark.parametrize("rounds", range(4))
async def test_no_job_fires_after_a_stop_at_any_moment(either: TimersHarness, rounds: int) -> None:
    either.set(PRICES, -1_000)
    either.timers.start()  # the first wake-up is on its way, and the job is due
    for _ in range(rounds):
        await asyncio.sleep(0)
    either.timers.stop()
    told = list(either.fired)
    either.set(NEWS, -1_000)
    for _ in range(5):
        await settle()
    assert (either.fired, either.timers.next_wake_ms) == (told, None)


async def test_the_timers_forget_what_was_dropped_or_set_anew(harness: TimersHarness) -> None:
    harness.set(NEWS, 3)
    harness.set(PRICES, 4)
    harness.set(PRICES, 5)
    harness.timers.drop(NEWS)
    harness.timers.start()
    await turn(harness, 1)
    assert (harness.fired, harness.timers.next_wake_ms) == ([(PRICES, 5)], None)


@pytest.mark.parametrize("moment_ms", [3 * DAY_MS, 10**18])
async def test_a_job_may_be_due_at_a_moment_that_no_calendar_knows(harness: TimersHarness, moment_ms: int) -> None:
    harness.set(PRICES, moment_ms)
    harness.timers.start()
    await turn(harness, 4 * DAY_MS / 1000)
    assert harness.fired == ([(PRICES, moment_ms)] if moment_ms < 10**18 else [])


async def test_a_job_that_raises_does_not_hold_up_the_others(harness: TimersHarness) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    harness.timers.set(NEWS, lambda now_ms: now_ms + 60_000, fail)
    harness.set(PRICES, 60_000)
    harness.timers.start()
    with capture_logs() as lines:
        await turn(harness, 61)
    assert [(line["event"], line["job"]) for line in lines] == [("internal error in a timer", NEWS)]
    assert harness.fired == [(PRICES, 60_000)]
    assert harness.timers.next_wake_ms is not None, "the faulty one is still to come"


async def test_a_job_may_be_set_once_those_that_were_due_have_fired(harness: TimersHarness) -> None:
    harness.timers.after_firing = lambda: harness.set(NEWS, 50) if len(harness.fired) == 1 else None
    harness.set(PRICES, 10)
    harness.timers.start()
    await turn(harness, 1)
    assert harness.fired == [(PRICES, 10), (NEWS, 50)]


async def test_a_clock_that_was_set_delays_nothing_once_that_is_known(harness: TimersHarness) -> None:
    assert isinstance(harness.clock, FakeClock)
    harness.set(PRICES, 60_000)
    harness.timers.start()
    await turn(harness, 0)
    harness.clock.jump(60)
    await turn(harness, 1)
    assert harness.fired == []
    harness.timers.clock_was_set()
    await turn(harness, 0)
    assert [job for job, _ in harness.fired] == [PRICES]


async def test_a_machine_whose_time_zone_is_unknown_has_timers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a trigger is told no zone, APScheduler asks tzlocal, which raises for a TZ that it does not know."""

    def refuse() -> None:
        raise ZoneInfoNotFoundError("Nowhere/Atlantis")

    monkeypatch.setattr("apscheduler.triggers.date.get_localzone", refuse)
    harness = TimersHarness(RealClock(), Timers(RealClock()))
    harness.set(PRICES, 1)
    harness.timers.start()
    await harness.until(lambda: bool(harness.fired))
