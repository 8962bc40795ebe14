from __future__ import annotations

import asyncio
import gc
import warnings
from asyncio import Future, TaskGroup
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import msgspec
import pytest
import structlog

from spyweb.errors import OpError
from spyweb.lua import wire
from spyweb.lua.channel import OVERDUE, RunChannel
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.hooks import HOOK_OP
from spyweb.lua.session import Code, PendingRun, Request
from spyweb.lua.wire import BeginRun, CancelRun, Form, Message, OpCall, PackedOpCall, ResumeRun, Why
from spyweb.model import JobId, RunId
from spyweb.ops import catalog  # noqa: F401 - it fills the catalogue
from spyweb.ops.dispatcher import OpDispatcher
from tests.fakes.clock import FakeClock, settle
from tests.fakes.ops import FakeHttp, make_call, make_world

Answer = Callable[[Sequence[object]], Awaitable[Sequence[object]]]


@dataclass
class Recorder(WorkerConnection):
    """A connection that keeps what is sent."""

    sent: list[Message] = field(default_factory=list)
    bulk: list[Message] = field(default_factory=list)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def send_bulk(self, message: Message) -> None:
        self.bulk.append(message)


@dataclass
class ScriptedHost:
    """Ops by name."""

    ops: dict[str, Answer]
    lines: list[tuple[str, bytes]] = field(default_factory=list)

    def op(self, name: str, arguments: Sequence[object]) -> Awaitable[Sequence[object]]:
        return self.ops[name](arguments)

    def log(self, level: str, text: bytes) -> None:
        if level == "broken":
            raise RuntimeError("no disk")
        self.lines.append((level, text))


@dataclass
class ChannelHarness:
    clock: FakeClock
    connection: Recorder
    host: ScriptedHost
    channel: RunChannel
    overdue: list[RunChannel]
    asked: int = 0

    def ask(self, name: str, *values: wire.Scalar, number: int | None = None) -> None:
        self.asked += 1
        self.channel.ask(OpCall(1, number or self.asked, name, list(values)))

    def ask_packed(self, name: str, packed: bytes, elements: int) -> None:
        self.asked += 1
        self.channel.ask(PackedOpCall(1, self.asked, name, packed, elements))

    @property
    def answers(self) -> list[list[object]]:
        return [[sent.form, *sent.values] for sent in self.connection.sent if isinstance(sent, ResumeRun)]


def done(*results: object) -> Future[Sequence[object]]:
    future: Future[Sequence[object]] = asyncio.get_running_loop().create_future()
    future.set_result(results)
    return future


def pending() -> Future[Sequence[object]]:
    return asyncio.get_running_loop().create_future()


@pytest.fixture
async def harness() -> AsyncIterator[ChannelHarness]:
    clock, connection, host, overdue = FakeClock(), Recorder(), ScriptedHost({}), list[RunChannel]()
    code = Code(job=JobId("a"), generation=1, chunk="jobs/a.lua", source=b"")
    request = Request(run=RunId(1), code=code, timeout_ms=2000, cpu_limit_ms=500, arguments=({"job": "a"}, True))
    async with TaskGroup() as tasks:
        pending = PendingRun(request=request, host=host, ending=asyncio.get_running_loop().create_future())
        channel = RunChannel(pending, 9, connection=connection, clock=clock, tasks=tasks, overdue=overdue.append)
        yield ChannelHarness(clock, connection, host, channel, overdue)
        channel.close()


async def test_a_run_begins_with_its_arguments_packed(harness: ChannelHarness) -> None:
    harness.channel.begin()

    assert harness.connection.sent == [BeginRun(1, 9, "run", wire.pack([{"job": "a"}, True]), 500)]


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


async def test_log_lines_reach_the_host_and_a_broken_log_costs_a_line(harness: ChannelHarness) -> None:
    with structlog.testing.capture_logs() as logs:
        harness.channel.log("broken", b"x")
        harness.channel.log("info", b"\xff")

    assert harness.host.lines == [("info", b"\xff")]
    assert [line["event"] for line in logs] == ["a log line was lost"]


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
