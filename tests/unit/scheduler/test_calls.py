"""One contract for APScheduler's calls, on real time, and for the fake's, on the fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from zoneinfo import ZoneInfoNotFoundError

import pytest

from spyweb.clock import Clock, RealClock
from spyweb.scheduler.calls import ScheduledCalls
from tests.fakes.calls import FakeCalls
from tests.fakes.clock import FakeClock, settle

SOON_MS = 10
SOON_S = SOON_MS / 1000
LONG_MS = 60_000


@dataclass
class CallsHarness:
    clock: Clock
    calls: ScheduledCalls
    story: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, word: str) -> None:
        self.story.append(word)
        self.changed.set()

    def noting(self, word: str) -> Callable[[], object]:
        return lambda: self.note(word)

    async def until(self, *story: str) -> None:
        """Let time pass until this has happened."""
        while len(self.story) < len(story):
            self.changed.clear()
            if isinstance(self.clock, FakeClock):
                await self.clock.turn(self.clock.next_in or 0)
            else:
                await self.changed.wait()
        assert self.story == list(story)


@pytest.fixture(params=["apscheduler", "fake"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[CallsHarness]:
    clock = RealClock() if request.param == "apscheduler" else FakeClock()
    calls = FakeCalls(clock) if isinstance(clock, FakeClock) else ScheduledCalls(clock)
    yield CallsHarness(clock, calls)
    await calls.stop()


async def test_a_call_is_made_once_at_its_moment(harness: CallsHarness) -> None:
    at_ms = harness.clock.now_ms() + SOON_MS
    harness.calls.call_at("one", at_ms, lambda: harness.note(str(harness.clock.now_ms() >= at_ms)))
    harness.calls.start()
    assert harness.calls.next_ms("one") == at_ms
    harness.calls.call_at("two", at_ms + SOON_MS, harness.noting("two"))
    await harness.until("True", "two")
    assert (harness.calls.next_ms("one"), harness.calls.next_ms("nothing")) == (None, None)


async def test_a_later_order_of_that_name_takes_the_place_of_the_earlier_one(harness: CallsHarness) -> None:
    harness.calls.start()
    harness.calls.call_at("one", harness.clock.now_ms() + SOON_MS, harness.noting("earlier"))
    harness.calls.call_at("one", harness.clock.now_ms() + SOON_MS, harness.noting("later"))
    harness.calls.call_at("two", harness.clock.now_ms() + LONG_MS, harness.noting("in a minute"))
    harness.calls.call_at("two", harness.clock.now_ms() + 2 * SOON_MS, harness.noting("now"))
    await harness.until("later", "now")


async def test_what_is_due_again_before_the_call_has_ended_is_not_lost(harness: CallsHarness) -> None:
    def again() -> None:
        harness.note("called")
        if len(harness.story) < 5:
            harness.calls.call_at("one", harness.clock.now_ms() - 1, again)

    harness.calls.start()
    harness.calls.call_at("one", harness.clock.now_ms(), again)
    await harness.until(*["called"] * 5)


async def test_what_is_repeated_is_called_again_and_again_but_never_while_it_is_under_way(
    harness: CallsHarness,
) -> None:
    go_on = asyncio.Event()

    async def call() -> None:
        harness.note("begins")
        await go_on.wait()
        harness.note("ends")

    harness.calls.call_every("slow", SOON_S, call)
    harness.calls.call_every("clock", SOON_S, lambda: _note(harness, "tick"))
    harness.calls.start()
    await harness.until("begins", "tick", "tick", "tick")
    go_on.set()
    await settle()
    harness.story.clear()
    harness.calls.call_every("clock", LONG_MS, lambda: _note(harness, "tick"))
    await harness.until("begins", "ends")


async def _note(harness: CallsHarness, word: str) -> None:
    harness.note(word)


async def test_nothing_is_called_after_a_stop_and_what_is_under_way_is_cancelled(
    harness: CallsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    async def call() -> None:
        harness.note("begins")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            harness.note("cancelled")
            raise

    harness.calls.call_every("slow", SOON_S, call)
    harness.calls.start()
    await harness.until("begins")
    harness.calls.call_at("late", harness.clock.now_ms() - 1, harness.noting("late"))
    await harness.calls.stop()
    assert harness.story == ["begins", "cancelled"]
    for _ in range(5):
        await settle()
    assert harness.story == ["begins", "cancelled"]
    assert harness.calls.next_ms("slow") is None
    await harness.calls.stop()
    assert caplog.records == []


@pytest.mark.parametrize("rounds", range(6))
async def test_a_stop_at_any_moment_before_a_call_is_no_error(
    harness: CallsHarness, caplog: pytest.LogCaptureFixture, rounds: int
) -> None:
    """Between the wake-up and the call APScheduler has made a task that has not begun."""
    harness.calls.start()
    harness.calls.call_at("one", harness.clock.now_ms() - 1, harness.noting("called"))
    harness.calls.call_every("two", SOON_S, lambda: _note(harness, "called too"))
    harness.calls.clock_was_set()
    for _ in range(rounds):
        await asyncio.sleep(0)
    await harness.calls.stop()
    told = list(harness.story)
    for _ in range(5):
        await settle()
    assert (harness.story, caplog.records) == (told, [])


async def test_stopping_without_a_start_does_nothing(harness: CallsHarness) -> None:
    await harness.calls.stop()


async def test_when_the_clock_was_set_what_is_repeated_is_called_at_once(harness: CallsHarness) -> None:
    harness.calls.call_every("daily", 86_400, lambda: _note(harness, "called"))
    harness.calls.start()
    expected_ms = harness.clock.now_ms() + 86_400_000
    assert abs((harness.calls.next_ms("daily") or 0) - expected_ms) < LONG_MS
    harness.calls.clock_was_set()
    await harness.until("called")


async def test_what_is_due_by_a_clock_that_was_set_forward_is_called_once_that_is_known() -> None:
    clock = FakeClock()
    harness = CallsHarness(clock, FakeCalls(clock))
    harness.calls.start()
    harness.calls.call_at("one", clock.now_ms() + LONG_MS, harness.noting("called"))
    clock.jump(LONG_MS / 1000)
    await clock.turn(1)
    assert harness.story == []
    harness.calls.clock_was_set()
    await clock.turn(0)
    assert harness.story == ["called"]


async def test_a_machine_whose_time_zone_is_unknown_has_calls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a trigger is told no zone, APScheduler asks tzlocal, which raises for a TZ that it does not know."""

    def refuse() -> None:
        raise ZoneInfoNotFoundError("Nowhere/Atlantis")

    for trigger in ("date", "interval"):
        monkeypatch.setattr(f"apscheduler.triggers.{trigger}.get_localzone", refuse)
    harness = CallsHarness(RealClock(), ScheduledCalls(RealClock()))
    harness.calls.call_at("one", 0, harness.noting("called"))
    harness.calls.call_every("two", 60, lambda: _note(harness, "called too"))
    harness.calls.start()
    await harness.until("called")
    await harness.calls.stop()
