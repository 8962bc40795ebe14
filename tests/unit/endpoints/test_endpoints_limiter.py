"""How many may be inside at once."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.endpoints.endpoints import ConcurrencyLimiter
from spyweb.errors import PoolError
from tests.fakes.clock import FakeClock


async def test_whoever_finds_no_room_waits_in_line_and_comes_in_in_turn() -> None:
    clock, story = FakeClock(), list[str]()
    limiter = ConcurrencyLimiter(clock, room=1, line=5, patience_s=10)

    async def visit(name: str) -> None:
        await limiter.enter()
        story.append(name)

    await limiter.enter()
    async with asyncio.TaskGroup() as tasks:
        for name in "abc":
            tasks.create_task(visit(name))
        await clock.turn()
        assert story == []
        for come_in in (["a"], ["a", "b"], ["a", "b", "c"]):
            limiter.leave()
            await clock.turn()
            assert story == come_in


async def test_a_full_line_turns_away_at_once() -> None:
    limiter = ConcurrencyLimiter(FakeClock(), room=0, line=0, patience_s=10)
    with pytest.raises(PoolError, match="0 are waiting"):
        await limiter.enter()


async def test_nobody_waits_for_ever() -> None:
    clock = FakeClock()
    limiter = ConcurrencyLimiter(clock, room=1, line=5, patience_s=10)
    await limiter.enter()
    waiting = asyncio.create_task(limiter.enter())
    await clock.turn()
    await clock.turn(10)
    with pytest.raises(PoolError, match="no room within 10 s"):
        await waiting
    limiter.leave()
    await limiter.enter()


async def test_who_gives_up_waiting_is_not_in_line_any_more() -> None:
    clock = FakeClock()
    limiter = ConcurrencyLimiter(clock, room=1, line=1, patience_s=10)
    await limiter.enter()
    gone = asyncio.create_task(limiter.enter())
    await clock.turn()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    next_one = asyncio.create_task(limiter.enter())
    await clock.turn()
    limiter.leave()
    await asyncio.wait_for(next_one, 1)


@pytest.mark.parametrize("is_let_in", [False, True])
async def test_who_gives_up_waiting_takes_no_place_along(is_let_in: bool) -> None:
    clock = FakeClock()
    limiter = ConcurrencyLimiter(clock, room=1, line=1, patience_s=10)
    await limiter.enter()
    waiting = asyncio.create_task(limiter.enter())
    await clock.turn()
    if is_let_in:
        limiter.leave()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    if not is_let_in:
        limiter.leave()
    await asyncio.wait_for(limiter.enter(), 1)
