"""Long work lets others have their turn."""

from __future__ import annotations

import asyncio
from asyncio import Future

import pytest

from spyweb.cooperative import SLICE, Steps, run_in_slices, set_done, within
from tests.fakes.clock import FakeClock
from tests.fakes.monitor import make_monitor, shop


class Story(FakeClock):
    """A clock that writes down when others have their turn."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    async def sleep(self, seconds: float) -> None:
        self.told.append("others")
        await super().sleep(seconds)

    def work(self, *, steps: int, takes: float) -> Steps[int]:
        for _ in range(steps):
            self.advance(takes)
            self.told.append("step")
            yield
        return steps


async def test_others_have_their_turn_after_each_slice() -> None:
    clock = Story()
    assert await run_in_slices(clock, clock.work(steps=6, takes=SLICE / 2)) == 6
    assert clock.told == ["step", "step", "others"] * 3


async def test_short_work_waits_for_nobody() -> None:
    clock = Story()
    await run_in_slices(clock, clock.work(steps=3, takes=SLICE / 4))
    assert clock.told == ["step"] * 3


async def test_the_keywords_of_a_large_page_are_looked_for_in_slices() -> None:
    async with shop() as s:
        asked = 0.0

        def monotonic() -> float:
            nonlocal asked
            asked += SLICE
            return asked

        turns: list[float] = []
        sleep = s.clock.sleep

        async def told(seconds: float) -> None:
            turns.append(seconds)
            await sleep(seconds)

        job = make_monitor(keywords=("lamp", "desk"))
        s.extractor.otherwise = [{"title": "lamp " * 10_000}] * 10
        s.clock.monotonic, s.clock.sleep = monotonic, told  # type: ignore[method-assign]
        await s.run(job)
        assert turns.count(0) == 10 * (4 + 2)  # parts of a text, and keywords


@pytest.mark.parametrize("hook", ["after_extract", "filter_item", "before_store", "before_notify"])
async def test_many_items_are_told_to_a_hook_and_read_from_it_one_by_one(hook: str) -> None:
    async with shop() as s:
        asked, turns = 0.0, list[float]()

        def monotonic() -> float:
            nonlocal asked
            asked += SLICE
            return asked

        async def told(seconds: float) -> None:
            turns.append(seconds)

        job = make_monitor(lua=True)
        s.extractor.otherwise = [{"title": f"lamp {number}"} for number in range(50)]
        s.vms.hooks = {hook: lambda items, ctx: items}
        s.clock.monotonic, s.clock.sleep = monotonic, told  # type: ignore[method-assign]
        await s.run(job)
        assert turns.count(0) > 90


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
