"""How a replayed run is answered from its record."""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from spyweb.daemon.commands import replay as command
from spyweb.daemon.commands.replay import Difference, ReplayHost
from spyweb.errors import OpError
from spyweb.lua.recording import RecordedOp, RunRecord
from spyweb.lua.wire import Why
from spyweb.model import Failure, Outcome
from tests.fakes.clock import settle
from tests.fakes.daemon_service import make_run, recorded


class Replay:
    def __init__(
        self,
        *ops: RecordedOp,
        outcome: Outcome = Outcome.FAILED,
        failure: Failure | None = Failure.ERROR,
        left_out: int = 0,
    ) -> None:
        record = RunRecord(procedure="run", arguments=[], variables={}, engine={}, reads={}, ops=ops, left_out=left_out)
        self.stops: list[Why] = []
        run = replace(make_run(outcome=outcome), failure=failure)
        self.host = ReplayHost(run, record, self.stops.append)

    def ask(self, name: str, *given: object, branch: int = 0) -> Task[Sequence[object]]:
        async def answered() -> Sequence[object]:
            return await self.host.op(name, given, (branch,) if branch else ())

        return asyncio.create_task(answered())


async def test_answers_come_in_the_recorded_order_whichever_branch_asks_first() -> None:
    replayed = Replay(
        recorded(2, "fast", [], lineage=(2,), answer=[b"f"]),
        recorded(1, "slow", [], lineage=(1,), answer=[b"s"]),
    )
    slow = replayed.ask("slow", branch=1)
    await settle()
    assert not slow.done()

    fast = replayed.ask("fast", branch=2)
    await settle()

    assert (fast.result(), slow.result()) == ([b"f"], [b"s"])


async def test_an_error_is_raised_as_it_was() -> None:
    replayed = Replay(
        recorded(1, "get", [], answer=[b"no \xff"], status="error"),
        recorded(2, "get", [], answer=[{b"code": 7}], status="error"),
    )
    errors = []
    for _ in range(2):
        with pytest.raises(OpError) as raised:
            await replayed.ask("get")
        errors.append(raised.value)

    assert (str(errors[0]), errors[0].value, errors[1].value) == ("no \udcff", None, {b"code": 7})


@pytest.mark.parametrize(
    ("outcome", "failure", "stops"),
    [
        (Outcome.FAILED, Failure.TIMEOUT, [Why.TIMEOUT]),
        (Outcome.FAILED, Failure.CANCELLED, [Why.CANCELLED]),
        (Outcome.LOST, None, [Why.STOPPED]),
        (Outcome.STOPPED, None, [Why.STOPPED]),
        (Outcome.FAILED, Failure.ERROR, []),
        (Outcome.SUCCESS, None, []),
    ],
)
async def test_a_run_that_was_ended_while_it_waited_is_ended_then(
    outcome: Outcome, failure: Failure | None, stops: list[Why], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SETTLING_S", 0)
    replayed = Replay(
        recorded(1, "quick", []), recorded(2, "slow", [], answer=None, status="unanswered"),
        outcome=outcome, failure=failure,
    )  # fmt: skip
    await replayed.ask("quick")
    waiting = replayed.ask("slow")
    await settle()
    await asyncio.sleep(0.01)

    assert replayed.stops == stops
    assert not waiting.done()
    assert not replayed.host.is_over
    waiting.cancel()


async def test_another_op_ends_the_replay_and_nothing_is_answered_any_more() -> None:
    replayed = Replay(recorded(1, "get", ["a"]), recorded(2, "get", ["b"]))
    asked = replayed.ask("get", "c")
    await settle()

    assert replayed.host.difference == Difference(op=1, recorded='get("a")', now='get("c")')
    assert replayed.stops == [Why.CANCELLED]
    with pytest.raises(OpError, match="the replay is over"):
        await replayed.ask("get", "b")
    asked.cancel()


async def test_what_the_record_had_no_room_for_ends_the_replay_with_that() -> None:
    replayed = Replay(recorded(1, "get", []), left_out=3)
    await replayed.ask("get")
    replayed.ask("get").cancel()
    replayed.host.conclude()

    assert replayed.host.obstacle == "the record ends: 3 later ops had no room in it"
    assert replayed.host.difference is None
