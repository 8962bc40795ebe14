from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import cast

import msgspec
import pytest
import structlog

from spyweb.errors import OpError
from spyweb.histogram import SHORT_SECONDS, Histogram
from spyweb.lua import wire
from spyweb.lua.hooks import HOOK_OP
from spyweb.lua.wire import Form, ResumeRun, Why
from spyweb.ops import catalog  # noqa: F401 - it fills the catalogue
from tests.fakes.channel import Answer, ChannelHarness, done, open_channel, pending
from tests.fakes.clock import settle


@pytest.fixture
async def harness() -> AsyncIterator[ChannelHarness]:
    async with open_channel() as harness:
        yield harness


async def test_a_finished_future_is_answered_at_once(harness: ChannelHarness) -> None:
    harness.host.ops["echo"] = lambda values: done(*values)

    harness.ask("echo", b"x", 1)

    assert harness.answers == [[Form.PLAIN, b"x", 1]]


async def test_a_pending_future_is_answered_when_it_is_done(harness: ChannelHarness) -> None:
    future = pending()
    harness.host.ops["get"] = lambda _: future

    harness.ask("get")
    assert not harness.answers

    future.set_result([b"value"])
    await settle()
    assert harness.answers == [[Form.PLAIN, b"value"]]


async def test_a_coroutine_is_carried_out_by_a_task(harness: ChannelHarness) -> None:
    async def sleep(values: Sequence[object]) -> Sequence[object]:
        await harness.clock.sleep(1)
        return values

    harness.host.ops["sleep"] = sleep
    harness.ask("sleep", 5)
    await harness.clock.turn(0.9)
    assert not harness.answers

    await harness.clock.turn(0.2)
    assert harness.answers == [[Form.PLAIN, 5]]


async def test_packed_arguments_arrive_as_python_values(harness: ChannelHarness) -> None:
    seen: list[object] = []

    def note(values: Sequence[object]) -> Awaitable[Sequence[object]]:
        seen.extend(values)
        return done()

    harness.host.ops["note"] = note
    harness.ask_packed("note", wire.pack([{"a": [1, b"\xff"]}, None]), 5)

    assert seen == [{"a": [1, b"\xff"]}, None]
    assert harness.answers == [[Form.PLAIN]]


async def test_arguments_that_python_cannot_hold_raise_in_lua(harness: ChannelHarness) -> None:
    harness.ask_packed("note", b"\x91\x81\x81\x01\x02\x03", 3)

    form, text = harness.answers[0]
    assert form == Form.RAISE
    assert b"can't leave the script" in cast(bytes, text)


async def test_a_big_answer_takes_the_second_socket(harness: ChannelHarness) -> None:
    harness.host.ops["get"] = lambda _: done(b"x" * (wire.BULK + 1))

    harness.ask("get")

    assert harness.connection.bulk == [ResumeRun(1, 1, Form.PLAIN, [b"x" * (wire.BULK + 1)])]


async def test_an_answer_too_large_for_a_message_is_an_error(
    harness: ChannelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LARGEST", 1000)
    harness.host.ops["fs_read"] = lambda _: done(b"x" * 1001)

    harness.ask("fs_read")

    told = b"fs_read: 1001 bytes can't be handed over at once, 1000 at most"
    assert harness.answers == [[Form.RAISE, told]]


@pytest.mark.parametrize("late", [False, True])
async def test_an_op_error_is_raised_in_lua_with_its_text(harness: ChannelHarness, late: bool) -> None:
    future = pending()
    harness.host.ops["set"] = lambda _: future
    if not late:
        future.set_exception(OpError("bad argument #1"))
    harness.ask("set")
    if late:
        future.set_exception(OpError("bad argument #1"))
        await settle()

    assert harness.answers == [[Form.RAISE, b"bad argument #1"]]


async def test_an_op_error_raised_by_the_call_itself_is_raised_in_lua(harness: ChannelHarness) -> None:
    def refuse(_: Sequence[object]) -> Awaitable[Sequence[object]]:
        raise OpError("no such op")

    harness.host.ops["x"] = refuse
    harness.ask("x")

    assert harness.answers == [[Form.RAISE, b"no such op"]]


async def test_an_op_error_with_a_value_is_raised_as_that_value(harness: ChannelHarness) -> None:
    error = OpError("failed")
    error.value = {"kind": "dns"}
    future = pending()
    future.set_exception(error)
    harness.host.ops["x"] = lambda _: future

    harness.ask("x")

    form, packed = harness.answers[0]
    assert form == Form.RAISE_PACKED
    assert wire.unpack(cast(bytes, packed)) == [{"kind": "dns"}]


@pytest.mark.parametrize("kind", ["call", "future", "coroutine", "result"])
async def test_a_bug_in_an_op_is_logged_and_costs_only_that_op(harness: ChannelHarness, kind: str) -> None:
    async def burst(_: Sequence[object]) -> Sequence[object]:
        raise ZeroDivisionError

    def failed(_: Sequence[object]) -> Awaitable[Sequence[object]]:
        future = pending()
        future.set_exception(ZeroDivisionError())
        return future

    ops: dict[str, Answer] = {
        "call": lambda _: 1 // 0,  # type: ignore[dict-item,return-value]
        "future": failed,
        "coroutine": burst,
        "result": lambda _: done(object()),
    }
    harness.host.ops["x"] = ops[kind]
    with structlog.testing.capture_logs() as logs:
        harness.ask("x")
        await settle()

    assert harness.answers == [[Form.RAISE, b"internal error in x"]]
    assert [(line["event"], line["op"]) for line in logs] == [("an op failed", "x")]


async def test_an_op_that_something_else_cancels_is_raised_in_lua(harness: ChannelHarness) -> None:
    future = pending()
    harness.host.ops["get"] = lambda _: future
    harness.ask("get")

    future.cancel()
    await settle()

    assert harness.answers == [[Form.RAISE, b"get was cancelled"]]


async def test_what_was_asked_before_a_kill_does_not_answer_what_is_asked_after_it(harness: ChannelHarness) -> None:
    before, after = pending(), pending()
    harness.host.ops.update({"get": lambda _: before, "set": lambda _: after, "late": lambda _: done(b"late")})
    harness.channel.cancel(Why.TIMEOUT)
    harness.ask("get", number=2)
    harness.ask("set", number=3)
    harness.ask("late", number=1)  # it took the other socket

    assert before.cancelled()
    after.set_result([b"done"])
    await settle()

    assert harness.connection.sent[1:] == [ResumeRun(1, 3, Form.PLAIN, [b"done"])]


def packed(elements: int, *values: object) -> tuple[bytes, int]:
    return wire.pack(list(values)), elements


async def test_what_holds_too_many_values_is_refused_before_it_is_unpacked(harness: ChannelHarness) -> None:
    harness.host.ops["state.set"] = lambda values: done(*values)

    harness.ask_packed("state.set", b"never unpacked", 200_001)
    harness.ask_packed("state.set", *packed(200_000, b"k", []))

    assert harness.answers == [
        [Form.RAISE, b"state.set: what it is given has 200001 values, at most 200000 are allowed"],
        [Form.PACKED, wire.pack([b"k", []])],
    ]


async def test_a_hook_may_return_more_and_its_value_is_left_packed(harness: ChannelHarness) -> None:
    heard: list[Sequence[object]] = []
    items = [{b"title": b"x" * wire.BULK}]

    def hear(values: Sequence[object]) -> Future[Sequence[object]]:
        heard.append(values)
        return done()

    harness.host.ops[HOOK_OP] = hear
    harness.ask_packed(HOOK_OP, *packed(200_001, 3, 1024, b"ok", items))
    harness.ask_packed(HOOK_OP, b"never unpacked", 2_000_001)

    ((defined, memory, status, value),) = heard
    assert (defined, memory, status) == (3, 1024, b"ok")
    assert value == wire.Packed(msgspec.Raw(wire.pack(items)), 200_001)
    assert harness.answers[1] == [Form.RAISE, b"what it returned has 2000001 values, at most 2000000 are allowed"]


async def test_an_op_is_timed_once_whether_it_is_answered_refused_or_waited_for() -> None:
    times = {name: Histogram(SHORT_SECONDS) for name in ("echo", "late", "bad")}
    async with open_channel(times) as harness:
        future = pending()
        harness.host.ops |= {"echo": lambda values: done(*values), "late": lambda _: future}
        harness.ask("echo", 1)
        harness.ask("bad")
        harness.ask("made up")
        harness.ask("late")
        assert {name: each.count for name, each in times.items()} == {"echo": 1, "late": 0, "bad": 1}
        future.set_result([2])
        await settle()
        assert times["late"].count == 1
        assert harness.answers[-1] == [Form.PLAIN, 2]
