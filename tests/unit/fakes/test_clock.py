"""The clock that tests turn keeps its promises."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.clock import Clock
from tests.fakes.clock import START_MS, FakeClock


def test_it_is_a_clock() -> None:
    clock: Clock = FakeClock()

    assert clock.now_ms() == START_MS
    assert clock.monotonic() == 0


def test_callbacks_fire_in_the_order_of_their_time_each_at_its_moment() -> None:
    clock, story = FakeClock(), list[str]()
    clock.call_later(2, lambda: story.append(f"second at {clock.monotonic()}"))
    clock.call_later(1, lambda: story.append(f"first at {clock.monotonic()}"))
    clock.call_later(2, lambda: story.append("third"))

    clock.advance(5)

    assert story == ["first at 1.0", "second at 2.0", "third"]
    assert clock.now_ms() == START_MS + 5000


def test_a_callback_that_comes_again_fires_once_a_period() -> None:
    clock, story = FakeClock(), list[float]()

    def again() -> None:
        story.append(clock.monotonic())
        clock.call_later(0.1, again)

    clock.call_later(0.1, again)
    clock.advance(0.3)

    assert story == [0.1, 0.2, 0.3]
    assert clock.next_in == pytest.approx(0.1)


def test_a_cancelled_callback_never_fires() -> None:
    clock, story = FakeClock(), list[str]()
    clock.call_later(1, lambda: story.append("fired")).cancel()

    clock.advance(2)

    assert story == []
    assert clock.pending == 0


async def test_the_loop_settles_between_two_moments() -> None:
    clock, story = FakeClock(), list[str]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        for _ in range(5):
            await asyncio.sleep(0)
        story.append(f"{name} at {clock.monotonic()}")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper("late", 2))
        tasks.create_task(sleeper("early", 1))
        await clock.turn(3)

    assert story == ["early at 1.0", "late at 2.0"]


async def test_a_cancelled_sleeper_leaves_nothing_behind() -> None:
    clock = FakeClock()
    task = asyncio.get_running_loop().create_task(clock.sleep(10))
    await clock.turn()
    assert clock.pending == 1

    task.cancel()
    await clock.turn()

    assert clock.pending == 0


async def test_a_call_without_delay_needs_no_turn() -> None:
    clock, story = FakeClock(), list[str]()
    clock.call_later(0, lambda: story.append("fired"))

    await clock.sleep(0)

    assert story == ["fired"]


def test_a_jump_of_the_wall_clock_fires_nothing() -> None:
    clock, story = FakeClock(), list[str]()
    clock.call_later(1, lambda: story.append("fired"))

    clock.jump(-3600)

    assert (clock.now_ms(), clock.monotonic(), story) == (START_MS - 3_600_000, 0, [])
