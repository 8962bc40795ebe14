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
class World:
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
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    clock = RealClock() if request.param == "apscheduler" else FakeClock()
    calls = FakeCalls(clock) if isinstance(clock, FakeClock) else ScheduledCalls(clock)
    yield World(clock, calls)
    await calls.stop()


async def test_a_call_is_made_once_at_its_moment(world: World) -> None:
    at_ms = world.clock.now_ms() + SOON_MS
    world.calls.call_at("one", at_ms, lambda: world.note(str(world.clock.now_ms() >= at_ms)))
    world.calls.start()
    assert world.calls.next_ms("one") == at_ms
    world.calls.call_at("two", at_ms + SOON_MS, world.noting("two"))
    await world.until("True", "two")
    assert (world.calls.next_ms("one"), world.calls.next_ms("nothing")) == (None, None)


async def test_a_later_order_of_that_name_takes_the_place_of_the_earlier_one(world: World) -> None:
    world.calls.start()
    world.calls.call_at("one", world.clock.now_ms() + SOON_MS, world.noting("earlier"))
    world.calls.call_at("one", world.clock.now_ms() + SOON_MS, world.noting("later"))
    world.calls.call_at("two", world.clock.now_ms() + LONG_MS, world.noting("in a minute"))
    world.calls.call_at("two", world.clock.now_ms() + 2 * SOON_MS, world.noting("now"))
    await world.until("later", "now")


async def test_what_is_due_again_before_the_call_has_ended_is_not_lost(world: World) -> None:
    def again() -> None:
        world.note("called")
        if len(world.story) < 5:
            world.calls.call_at("one", world.clock.now_ms() - 1, again)

    world.calls.start()
    world.calls.call_at("one", world.clock.now_ms(), again)
    await world.until(*["called"] * 5)


async def test_what_is_repeated_is_called_again_and_again_but_never_while_it_is_under_way(world: World) -> None:
    go_on = asyncio.Event()

    async def call() -> None:
        world.note("begins")
        await go_on.wait()
        world.note("ends")

    world.calls.call_every("slow", SOON_S, call)
    world.calls.call_every("clock", SOON_S, lambda: _note(world, "tick"))
    world.calls.start()
    await world.until("begins", "tick", "tick", "tick")
    go_on.set()
    await settle()
    world.story.clear()
    world.calls.call_every("clock", LONG_MS, lambda: _note(world, "tick"))
    await world.until("begins", "ends")


async def _note(world: World, word: str) -> None:
    world.note(word)


async def test_nothing_is_called_after_a_stop_and_what_is_under_way_is_cancelled(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def call() -> None:
        world.note("begins")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            world.note("cancelled")
            raise

    world.calls.call_every("slow", SOON_S, call)
    world.calls.start()
    await world.until("begins")
    world.calls.call_at("late", world.clock.now_ms() - 1, world.noting("late"))
    await world.calls.stop()
    assert world.story == ["begins", "cancelled"]
    for _ in range(5):
        await settle()
    assert world.story == ["begins", "cancelled"]
    assert world.calls.next_ms("slow") is None
    await world.calls.stop()
    assert caplog.records == []


@pytest.mark.parametrize("rounds", range(6))
async def test_a_stop_at_any_moment_before_a_call_is_no_error(
    world: World, caplog: pytest.LogCaptureFixture, rounds: int
) -> None:
    """Between the wake-up and the call APScheduler has made a task that has not begun."""
    world.calls.start()
    world.calls.call_at("one", world.clock.now_ms() - 1, world.noting("called"))
    world.calls.call_every("two", SOON_S, lambda: _note(world, "called too"))
    world.calls.clock_was_set()
    for _ in range(rounds):
        await asyncio.sleep(0)
    await world.calls.stop()
    told = list(world.story)
    for _ in range(5):
        await settle()
    assert (world.story, caplog.records) == (told, [])


async def test_stopping_without_a_start_does_nothing(world: World) -> None:
    await world.calls.stop()


async def test_when_the_clock_was_set_what_is_repeated_is_called_at_once(world: World) -> None:
    world.calls.call_every("daily", 86_400, lambda: _note(world, "called"))
    world.calls.start()
    expected_ms = world.clock.now_ms() + 86_400_000
    assert abs((world.calls.next_ms("daily") or 0) - expected_ms) < LONG_MS
    world.calls.clock_was_set()
    await world.until("called")


async def test_what_is_due_by_a_clock_that_was_set_forward_is_called_once_that_is_known() -> None:
    clock = FakeClock()
    world = World(clock, FakeCalls(clock))
    world.calls.start()
    world.calls.call_at("one", clock.now_ms() + LONG_MS, world.noting("called"))
    clock.jump(LONG_MS / 1000)
    await clock.turn(1)
    assert world.story == []
    world.calls.clock_was_set()
    await clock.turn(0)
    assert world.story == ["called"]


async def test_a_machine_whose_time_zone_is_unknown_has_calls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a trigger is told no zone, APScheduler asks tzlocal, which raises for a TZ that it does not know."""

    def refuse() -> None:
        raise ZoneInfoNotFoundError("Nowhere/Atlantis")

    for trigger in ("date", "interval"):
        monkeypatch.setattr(f"apscheduler.triggers.{trigger}.get_localzone", refuse)
    world = World(RealClock(), ScheduledCalls(RealClock()))
    world.calls.call_at("one", 0, world.noting("called"))
    world.calls.call_every("two", 60, lambda: _note(world, "called too"))
    world.calls.start()
    await world.until("called")
    await world.calls.stop()
