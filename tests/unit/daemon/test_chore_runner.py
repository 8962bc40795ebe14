"""Chores on the virtual clock: each at its interval, none while it is under way, and no error ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.chore_runner import Chore, ChoreRunner
from spyweb.errors import NoAccess, StoreError
from spyweb.views.health import ChoreHealth
from tests.fakes.clock import FakeClock
from tests.fakes.stalling import StallClocks
from tests.fakes.timers import FakeTimers

EVERY_S = 60.0


class ChoreHarness:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.runner = ChoreRunner(self.timers, self.clock)
        self.began_ms = self.clock.now_ms()

    def start(self, do: Callable[[], Awaitable[object]]) -> None:
        self.runner.start([Chore(name="sweep", every_s=EVERY_S, do=do, why="")])
        self.timers.start()

    def health(self) -> ChoreHealth:
        (found,) = self.runner.health()
        return found


@pytest.fixture
async def harness() -> ChoreHarness:
    return ChoreHarness()


async def test_a_chore_is_done_at_its_interval_and_account_is_kept_of_it(harness: ChoreHarness) -> None:
    times: list[int] = []

    async def sweep() -> None:
        times.append(harness.clock.now_ms() - harness.began_ms)
        await harness.clock.sleep(2)

    harness.start(sweep)
    assert harness.health() == ChoreHealth(name="sweep", every_s=EVERY_S, next_at_ms=harness.began_ms + 60_000)
    await harness.clock.turn(150)
    assert times == [60_000, 120_000]
    found = harness.health()
    assert (found.last_at_ms, found.last_took_ms, found.error) == (harness.began_ms + 120_000, 2000, "")
    assert found.next_at_ms == harness.began_ms + 180_000


@pytest.mark.parametrize("error", [StoreError("the disk is full"), NoAccess("spyweb.db: no access as me")])
async def test_what_the_store_refuses_is_done_the_next_time(harness: ChoreHarness, error: Exception) -> None:
    tried: list[int] = []

    async def refuse_at_first() -> None:
        tried.append(harness.clock.now_ms())
        if len(tried) == 1:
            raise error

    harness.start(refuse_at_first)
    with capture_logs() as lines:
        await harness.clock.turn(EVERY_S)
    assert [(line["event"], line["chore"], line["by_s"]) for line in lines] == [("put off", "sweep", EVERY_S)]
    assert harness.health().error == str(error)
    await harness.clock.turn(2 * EVERY_S)
    assert len(tried) == 3
    assert harness.health().error == ""


async def test_a_bug_in_a_chore_is_logged_and_ends_neither_it_nor_the_daemon(harness: ChoreHarness) -> None:
    async def fail() -> None:
        raise ValueError("no such thing")

    harness.start(fail)
    with capture_logs() as lines:
        await harness.clock.turn(2 * EVERY_S)
    assert [line["event"] for line in lines] == ["a chore met a bug in spyweb"] * 2
    assert harness.health().error == "ValueError: no such thing"


async def test_a_chore_that_takes_longer_than_its_interval_is_not_begun_again_meanwhile(harness: ChoreHarness) -> None:
    begun: list[int] = []

    async def sweep() -> None:
        begun.append(harness.clock.now_ms() - harness.began_ms)
        await harness.clock.sleep(2.5 * EVERY_S)

    harness.start(sweep)
    await harness.clock.turn(4 * EVERY_S)
    assert begun == [60_000, 240_000]


async def test_a_stop_cancels_what_is_under_way_and_waits_until_it_has_ended(harness: ChoreHarness) -> None:
    story: list[str] = []

    async def sweep() -> None:
        story.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            story.append("ends")

    harness.start(sweep)
    await harness.clock.turn(EVERY_S)
    await harness.runner.stop()
    assert story == ["begins", "ends"]
    await harness.clock.turn(2 * EVERY_S)
    await harness.runner.stop()
    assert story == ["begins", "ends"]


async def test_a_runner_that_was_never_started_can_be_stopped(harness: ChoreHarness) -> None:
    await harness.runner.stop()
    assert harness.runner.health() == []


async def test_a_chore_that_holds_the_loop_is_named(harness: ChoreHarness) -> None:
    clocks = StallClocks()
    recorder = clocks.recorder()
    stalls: list[str] = []
    recorder.listen = lambda stall: stalls.append(str(stall.work))

    async def sweep() -> None:
        clocks.compute(1.0)

    loop = asyncio.get_running_loop()
    recorder.install(loop)
    try:
        harness.start(sweep)
        await harness.clock.turn(EVERY_S)
    finally:
        loop.set_task_factory(None)
    assert stalls == ["chore 'sweep'"]
