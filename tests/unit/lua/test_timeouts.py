from __future__ import annotations

import asyncio
from asyncio import Future

from spyweb.lua.timeouts import set_done, within
from tests.fakes.clock import FakeClock


def pending() -> Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_what_is_done_in_time_is_done() -> None:
    clock, future = FakeClock(), pending()
    waiting = asyncio.create_task(within(clock, 5, future))
    await clock.turn(4)

    set_done(future)
    await clock.turn()

    assert waiting.result()
    assert not clock.pending


async def test_what_takes_longer_is_left_as_it_is() -> None:
    clock, future = FakeClock(), pending()
    waiting = asyncio.create_task(within(clock, 5, future))

    await clock.turn(5)

    assert not waiting.result()
    assert not future.done()


async def test_what_was_done_before_is_done_at_once() -> None:
    clock, future = FakeClock(), pending()
    set_done(future)

    assert await within(clock, 5, future)


async def test_settling_twice_is_harmless() -> None:
    future = pending()
    set_done(future)
    set_done(future)
