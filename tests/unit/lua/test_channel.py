from __future__ import annotations

import gc
import math
import warnings
from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import partial
from typing import cast

import msgspec
import pytest
import structlog

from spyweb.errors import OpError
from spyweb.histogram import SHORT_SECONDS, Histogram
from spyweb.lua import channel, wire
from spyweb.lua.channel import OVERDUE, pack, resume
from spyweb.lua.hooks import HOOK_OP
from spyweb.lua.wire import BeginRun, BranchBegan, BranchEnded, CancelRun, EndBranch, Form, OpCall, ResumeRun, Why
from spyweb.ops.dispatcher import OpDispatcher
from tests.fakes.channel import Answer, ChannelHarness, done, open_channel, pending
from tests.fakes.clock import settle
from tests.fakes.ops import FakeHttp, make_call, make_world


@pytest.fixture
async def harness() -> AsyncIterator[ChannelHarness]:
    async with open_channel() as harness:
        yield harness


def end_by(harness: ChannelHarness, how: str) -> None:
    if how == "cancel":
        harness.channel.cancel(Why.CANCELLED)
    else:
        harness.channel.close()


async def test_a_run_begins_with_its_arguments_packed(harness: ChannelHarness) -> None:
    harness.channel.begin()

    assert harness.connection.sent == [BeginRun(1, 9, "run", wire.pack([{"job": "a"}, True]), 500)]


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_run_that_ends_or_is_cancelled_takes_its_op_with_it(harness: ChannelHarness, how: str) -> None:
    future = pending()
    harness.host.ops["get"] = lambda _: future
    harness.ask("get")

    end_by(harness, how)
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
        end_by(harness, how)
        await settle()
        gc.collect()

    assert [str(each.message) for each in complaints] == []
    assert (http.asked, harness.answers) == ([], [])


async def test_the_first_reason_to_end_stands(harness: ChannelHarness) -> None:
    harness.channel.cancel(Why.CANCELLED)
    harness.channel.cancel(Why.STOPPED)
    await harness.clock.turn(2.5)

    assert harness.connection.sent == [CancelRun(1, Why.CANCELLED)]
    assert harness.channel.why is Why.CANCELLED


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_cancelled_run_that_does_not_end_is_overdue(harness: ChannelHarness, has_ended: bool) -> None:
    harness.channel.cancel(Why.CANCELLED)
    if has_ended:
        harness.channel.close()
        assert not harness.clock.pending
    await harness.clock.turn(OVERDUE - 0.1)
    assert not harness.overdue

    await harness.clock.turn(0.2)
    assert harness.overdue == ([] if has_ended else [harness.channel])


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


# Ops


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


@pytest.mark.parametrize("when", ["by the call", "before", "later"])
async def test_an_op_error_is_raised_in_lua_with_its_text(harness: ChannelHarness, when: str) -> None:
    future = pending()

    def op(_: Sequence[object]) -> Awaitable[Sequence[object]]:
        if when == "by the call":
            raise OpError("bad argument #1")
        return future

    harness.host.ops["set"] = op
    if when == "before":
        future.set_exception(OpError("bad argument #1"))
    harness.ask("set")
    if when == "later":
        future.set_exception(OpError("bad argument #1"))
        await settle()

    assert harness.answers == [[Form.RAISE, b"bad argument #1"]]


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


# Branches


def ask_in(harness: ChannelHarness, branch: int, number: int, name: str = "get") -> None:
    call = OpCall(1, number, name, [], branch)
    slot = harness.channel.slot_for(call)
    if slot is not None:
        slot.ask(call)


async def test_the_run_and_its_branches_have_an_op_each_under_way(harness: ChannelHarness) -> None:
    futures = [pending() for _ in range(3)]
    waiting = iter(futures)
    harness.host.ops["get"] = lambda _: next(waiting)
    harness.ask("get", number=1)
    ask_in(harness, 1, 2)
    ask_in(harness, 2, 3)
    ask_in(harness, 3, 4, "no such op")

    for future in reversed(futures):
        future.set_result([b"x"])
        await settle()

    answers = [(sent.number, sent.form) for sent in harness.connection.sent if isinstance(sent, ResumeRun)]
    assert answers == [(4, Form.RAISE), (3, Form.PLAIN), (2, Form.PLAIN), (1, Form.PLAIN)]
    assert harness.host.lineages == [(), (1,), (2,), (3,)]


async def test_a_branch_in_another_is_known_by_both(harness: ChannelHarness) -> None:
    harness.host.ops["get"] = lambda _: done()
    harness.channel.branch_began(BranchBegan(1, 7, 4, 0))
    harness.channel.branch_began(BranchBegan(1, 9, 7, 0))
    for number, branch in enumerate((4, 7, 9), 1):
        ask_in(harness, branch, number)

    assert harness.host.lineages == [(4,), (7, 4), (9, 7, 4)]


async def test_the_end_of_a_branch_cancels_its_op_alone_and_frees_what_it_has(harness: ChannelHarness) -> None:
    mine, other = pending(), pending()
    waiting = iter((mine, other))
    harness.host.ops["get"] = lambda _: next(waiting)
    ask_in(harness, 1, 1)
    ask_in(harness, 2, 2)

    harness.channel.branch_ended(BranchEnded(1, 1, 1))

    assert (mine.cancelled(), other.cancelled()) == (True, False)
    assert harness.host.ended == [(1,)]


@pytest.mark.parametrize("has_asked_before", [False, True])
async def test_an_op_that_comes_after_the_end_of_its_branch_is_dropped(
    harness: ChannelHarness, has_asked_before: bool
) -> None:
    """It is big, and took the other socket."""
    harness.host.ops["get"] = lambda _: done()
    if has_asked_before:
        ask_in(harness, 1, 1)
    harness.channel.branch_ended(BranchEnded(1, 1, 2))

    ask_in(harness, 1, 2)
    ask_in(harness, 2, 3)

    assert harness.host.lineages == ([(1,), (2,)] if has_asked_before else [(2,)])


async def test_the_worker_is_told_when_the_time_of_a_branch_is_up(harness: ChannelHarness) -> None:
    harness.channel.branch_began(BranchBegan(1, 1, 0, 1500))
    harness.channel.branch_began(BranchBegan(1, 2, 0, 1000))
    harness.channel.branch_ended(BranchEnded(1, 2, 0))

    await harness.clock.turn(1.4)
    assert not harness.connection.sent

    await harness.clock.turn(0.2)
    assert harness.connection.sent == [EndBranch(1, 1)]


async def test_a_cancel_ends_the_ops_and_timeouts_of_all_branches(harness: ChannelHarness) -> None:
    op = pending()
    harness.host.ops["get"] = lambda _: op
    harness.channel.branch_began(BranchBegan(1, 1, 0, 1000))
    ask_in(harness, 1, 1)

    harness.channel.cancel(Why.CANCELLED)
    await harness.clock.turn(1.5)

    assert op.cancelled()
    assert not any(isinstance(sent, EndBranch) for sent in harness.connection.sent)


async def test_a_run_that_ends_frees_what_its_branches_have(harness: ChannelHarness) -> None:
    harness.host.ops["get"] = lambda _: pending()
    ask_in(harness, 1, 1)
    ask_in(harness, 2, 2)

    harness.channel.close()
    harness.channel.close()

    assert harness.host.ended == [(1,), (2,)]


async def test_there_is_a_limit_to_what_a_worker_may_make_up(
    harness: ChannelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MOST_BRANCHES", 3)
    for branch in (1, 2, 3):
        ask_in(harness, branch, branch)

    with pytest.raises(ValueError, match="over 3 branches of one run"):
        ask_in(harness, 4, 4)
    for number in (11, 12, 13):
        harness.channel.branch_ended(BranchEnded(1, number, number))
    with pytest.raises(ValueError, match="over 3 branches of one run"):
        harness.channel.branch_ended(BranchEnded(1, 14, 14))


# What is handed to a VM


@pytest.mark.parametrize(
    ("given", "values", "size"),
    [
        ([None, True, 3, 2.5, b"\xff\x00", "text"], [None, True, 3, 2.5, b"\xff\x00", b"text"], 6),
        ([2**63 - 1, -(2**63), 1 << 40], [2**63 - 1, -(2**63), 1 << 40], 0),
        ([2**64, -(2**63) - 1], [2.0**64, -(2.0**63)], 0),
        ([10**400, -(10**400)], [math.inf, -math.inf], 0),
        (["a\udcff", "é"], [b"a\xff", "é".encode()], 4),
    ],
)
def test_scalars_cross_one_by_one_as_lua_can_hold_them(
    given: list[object], values: list[wire.Scalar], size: int
) -> None:
    message, counted = resume(7, 3, given)

    assert (message, repr(message.values), counted) == (ResumeRun(7, 3, Form.PLAIN, values), repr(values), size)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([b"\xff", {"a": [1, 2]}], [b"\xff", {"a": [1, 2]}]),
        ([[2**63 - 1], [-(2**63)]], [[2**63 - 1], [-(2**63)]]),
        ([{"deep": [10**30]}, (2**64,)], [{"deep": [10.0**30]}, [2.0**64]]),
        ([{"name": "a\udcff", "flag": True}], [{"name": b"a\xff", "flag": True}]),
    ],
)
def test_a_table_makes_the_whole_list_cross_packed(given: list[object], values: list[object]) -> None:
    message, size = resume(7, 3, given)

    (packed,) = message.values
    assert isinstance(packed, bytes)
    assert (message.form, size, repr(wire.unpack(packed))) == (Form.PACKED, len(packed), repr(values))


def test_an_answer_that_must_be_walked_through_is_so_only_up_to_a_bound() -> None:
    name = "a\udcff"

    assert pack([name, [1] * 1_000]) == wire.pack([b"a\xff", [1] * 1_000])
    with pytest.raises(OpError, match=r"^an answer with text that is not UTF-8 has more than 20000 values$"):
        pack([name, [{}] * 20_000])
