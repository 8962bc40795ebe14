from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from spyweb.errors import OpError, Refused
from spyweb.lua.session import Results, StoreAnswer
from spyweb.model import BranchId, RunId
from spyweb.ops import dispatcher as host_module
from spyweb.ops.arguments import Text
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.locks import LockRequest
from spyweb.ops.op import Operation, describe
from spyweb.ops.world import Call
from tests.fakes.ops import make_call
from tests.fakes.stalling import StallClocks

LINES: list[tuple[str, bytes]] = []


async def one(call: Call, value: Text) -> bytes:
    return value


async def two(call: Call) -> tuple[object, object]:
    return None, b"reason"


async def none(call: Call) -> None:
    return None


async def refuse(call: Call) -> None:
    raise OpError("not today")


async def senseless(call: Call) -> None:
    raise Refused("it makes no sense here")


async def bug(call: Call) -> None:
    raise LookupError("secret detail")


def early_bug(call: Call) -> StoreAnswer[None]:
    raise LookupError("secret detail")


def quick(call: Call) -> StoreAnswer[bytes]:
    source: Future[bytes] = asyncio.get_running_loop().create_future()
    source.set_result(b"at once")
    return StoreAnswer(source, lambda source: (source.result(),))


def wrong(call: Call) -> int:
    return 3


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch) -> dict[str, Operation]:
    ops = {each.__name__: describe(each.__name__, each) for each in (one, two, none, refuse, senseless, bug)}
    ops |= {each.__name__: describe(each.__name__, each) for each in (early_bug, quick, wrong)}
    monkeypatch.setattr(host_module, "CATALOGUE", ops)
    return ops


def make_host(call: Call | None = None) -> OpDispatcher:
    return OpDispatcher(call or make_call(log=lambda level, text: LINES.append((level, text))))


async def test_results_are_a_sequence_of_one_of_several_or_of_none() -> None:
    host = make_host()
    assert list(await host.op("one", [b"v"])) == [b"v"]
    assert list(await host.op("two", [])) == [None, b"reason"]
    assert list(await host.op("none", [])) == []


async def test_an_answer_is_handed_on_as_it_is() -> None:
    answer = make_host().op("quick", [])
    assert isinstance(answer, StoreAnswer)
    assert answer.source.done()
    assert answer.result() == (b"at once",)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("nothing", [], "there is no op named 'nothing'"),
        ("one", [True], "bad argument #1 to 'one' (string expected, got boolean)"),
        ("refuse", [], "not today"),
        ("senseless", [], "senseless: it makes no sense here"),
    ],
)
async def test_whatever_is_refused_is_an_op_error(name: str, arguments: list[object], text: str) -> None:
    with pytest.raises(OpError) as error:
        await make_host().op(name, arguments)
    assert str(error.value) == text


@pytest.mark.parametrize("name", ["bug", "early_bug", "wrong"])
async def test_a_bug_fails_the_call_and_tells_the_log_not_the_script(name: str) -> None:
    with capture_logs() as logs, pytest.raises(OpError) as error:
        await make_host().op(name, [])
    assert str(error.value) == f"{name} failed inside spyweb; its log has the details"
    assert [(line["event"], line["op"], line["job"]) for line in logs] == [("op.bug", name, "prices")]


async def test_a_cancelled_op_is_let_through(catalogue: dict[str, Operation]) -> None:
    async def wait(call: Call) -> None:
        await asyncio.Event().wait()

    catalogue["wait"] = describe("wait", wait)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await make_host().op("wait", [])


async def test_calls_and_errors_are_counted_by_op() -> None:
    call = make_call()
    host = make_host(call)
    await host.op("one", [b"v"])
    await host.op("one", [b"v"])
    for name in ("one", "bug", "refuse"):
        with capture_logs(), pytest.raises(OpError):
            await host.op(name, [])
    assert call.world.metrics.calls == {"one": 3, "bug": 1, "refuse": 1}
    assert call.world.metrics.errors == {"one": 1, "bug": 1, "refuse": 1}


async def test_an_op_is_told_which_branch_asks(catalogue: dict[str, Operation]) -> None:
    asked: list[tuple[tuple[int, ...], object]] = []

    async def note(call: Call) -> None:
        asked.append((call.lineage, call.owner))

    catalogue["note"] = describe("note", note)
    host = make_host()
    for lineage in ((), (2, 1), (3,)):
        await host.op("note", [], lineage)

    assert asked == [((), RunId(1)), ((2, 1), BranchId(RunId(1), 2)), ((3,), BranchId(RunId(1), 3))]


async def test_the_end_of_a_branch_is_told_once_and_of_those_alone_that_have_asked() -> None:
    call = make_call()
    host = OpDispatcher(call)
    locks = call.world.locks
    await host.op("two", [], (1,))
    await locks.take(LockRequest(name=b"l", holder=b"h", run=call.run, lease_ms=1000, lineage=(1,)))

    host.end_branch((2,))
    assert await call.world.store.locks.holder(b"l")
    host.end_branch((1,))
    host.end_branch((1,))

    assert await call.world.store.locks.holder(b"l") is None


def test_log_lines_go_where_the_run_keeps_them() -> None:
    LINES.clear()
    make_host().log("warn", b"\xff")
    assert LINES == [("warn", b"\xff")]


async def test_an_op_that_holds_the_loop_is_told_with_its_run_before_and_after_it_first_waits(
    catalogue: dict[str, Operation],
) -> None:
    clocks = StallClocks()

    async def slow(call: Call) -> None:
        await asyncio.sleep(0)
        clocks.compute(1.0)

    def slow_at_once(call: Call) -> StoreAnswer[bytes]:
        clocks.compute(2.0)
        return quick(call)

    catalogue.update({each.__name__: describe(each.__name__, each) for each in (slow, slow_at_once)})
    call = make_call()
    call = replace(call, world=replace(call.world, stalls=clocks.recorder()))
    call.world.stalls.install(asyncio.get_running_loop())
    host = make_host(call)
    await host.op("slow_at_once", [])

    async def carry_out(results: Awaitable[Results]) -> None:
        await results

    await asyncio.get_running_loop().create_task(carry_out(host.op("slow", [])))  # as the channel does
    asyncio.get_running_loop().set_task_factory(None)
    assert [str(stall.work) for stall in clocks.stalls] == [
        f"op slow_at_once of {call.job}, run {call.run}",
        f"op slow of {call.job}, run {call.run}",
    ]


async def test_no_effect_begins_once_another_node_may_have_taken_the_work_over() -> None:
    call = make_call(is_recorded=True)
    host, ownership = OpDispatcher(call), call.world.ownership
    assert await host.op("one", [b"1"]) == (b"1",)
    ownership.trusted_until = ownership._clock.boottime()
    with pytest.raises(OpError, match="one: this node has not reached the database"):
        await host.op("one", [b"1"])
    proof = OpDispatcher(replace(call, is_recorded=False))
    assert await proof.op("one", [b"1"]) == (b"1",), "each node tests files"
