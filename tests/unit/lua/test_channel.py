from __future__ import annotations

import gc
import warnings
from asyncio import Future
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest
import structlog

from spyweb.lua import wire
from spyweb.lua.channel import OVERDUE
from spyweb.lua.wire import BeginRun, CancelRun, Form, Why
from spyweb.ops import catalog  # noqa: F401 - it fills the catalogue
from spyweb.ops.dispatcher import OpDispatcher
from tests.fakes.channel import ChannelHarness, done, open_channel, pending
from tests.fakes.clock import settle
from tests.fakes.ops import FakeHttp, make_call, make_world


@pytest.fixture
async def harness() -> AsyncIterator[ChannelHarness]:
    async with open_channel() as harness:
        yield harness


async def test_a_run_begins_with_its_arguments_packed(harness: ChannelHarness) -> None:
    harness.channel.begin()

    assert harness.connection.sent == [BeginRun(1, 9, "run", wire.pack([{"job": "a"}, True]), 500)]


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_run_that_ends_or_is_cancelled_takes_its_op_with_it(harness: ChannelHarness, how: str) -> None:
    future = pending()
    harness.host.ops["get"] = lambda _: future
    harness.ask("get")

    if how == "cancel":
        harness.channel.cancel(Why.CANCELLED)
    else:
        harness.channel.close()
    await settle()

    assert future.cancelled()
    assert not harness.answers


async def test_a_task_of_an_op_ends_with_its_run(harness: ChannelHarness) -> None:
    story = []

    async def forever(_: Sequence[object]) -> Sequence[object]:
        try:
            await harness.clock.sleep(1e6)
        finally:
            story.append("ended")
        return []

    harness.host.ops["lock"] = forever
    harness.ask("lock")
    await settle()

    harness.channel.close()
    await settle()

    assert story == ["ended"]
    assert not harness.answers


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_an_op_whose_run_ends_in_the_turn_in_which_it_is_asked_for_is_never_begun(
    harness: ChannelHarness, how: str
) -> None:
    """Nor does it leave a coroutine that nobody awaits, which Python would complain of."""
    http = FakeHttp()
    dispatcher = OpDispatcher(make_call(make_world(http=http)))
    harness.host.ops["http_get"] = partial(dispatcher.op, "http_get")
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        harness.ask("http_get", b"http://example.com/")
        if how == "cancel":
            harness.channel.cancel(Why.CANCELLED)
        else:
            harness.channel.close()
        await settle()
        gc.collect()

    assert [str(each.message) for each in complaints] == []
    assert (http.asked, harness.answers) == ([], [])


async def test_an_op_that_fails_after_its_run_has_ended_is_nobodys_affair(harness: ChannelHarness) -> None:
    class Stubborn(Future[Sequence[object]]):
        def cancel(self, msg: object = None) -> bool:
            return False

    future = Stubborn()
    harness.host.ops["get"] = lambda _: future
    harness.ask("get")
    harness.channel.close()

    future.set_exception(OSError())
    await settle()

    assert not harness.answers


async def test_a_run_is_told_of_its_timeout(harness: ChannelHarness) -> None:
    harness.channel.begin()

    await harness.clock.turn(1.9)
    assert len(harness.connection.sent) == 1

    await harness.clock.turn(0.2)
    assert harness.connection.sent[-1] == CancelRun(1, Why.TIMEOUT)


async def test_the_first_reason_to_end_stands(harness: ChannelHarness) -> None:
    harness.channel.cancel(Why.CANCELLED)
    harness.channel.cancel(Why.STOPPED)
    await harness.clock.turn(2.5)

    assert harness.connection.sent == [CancelRun(1, Why.CANCELLED)]
    assert harness.channel.why is Why.CANCELLED


async def test_a_cancelled_run_that_does_not_end_is_overdue(harness: ChannelHarness) -> None:
    harness.channel.cancel(Why.CANCELLED)
    await harness.clock.turn(OVERDUE - 0.1)
    assert not harness.overdue

    await harness.clock.turn(0.2)
    assert harness.overdue == [harness.channel]


async def test_a_run_that_has_ended_is_never_overdue(harness: ChannelHarness) -> None:
    harness.channel.cancel(Why.CANCELLED)
    harness.channel.close()
    await harness.clock.turn(60)

    assert not harness.overdue
    assert not harness.clock.pending


async def test_hooks_that_follow_a_cancel_are_still_answered(harness: ChannelHarness) -> None:
    harness.host.ops["echo"] = lambda values: done(*values)
    harness.channel.cancel(Why.TIMEOUT)

    harness.ask("echo", 1)

    assert harness.answers == [[Form.PLAIN, 1]]


async def test_log_lines_reach_the_host_and_a_broken_log_costs_a_line(harness: ChannelHarness) -> None:
    with structlog.testing.capture_logs() as logs:
        harness.channel.log("broken", b"x")
        harness.channel.log("info", b"\xff")

    assert harness.host.lines == [("info", b"\xff")]
    assert [line["event"] for line in logs] == ["a log line was lost"]
