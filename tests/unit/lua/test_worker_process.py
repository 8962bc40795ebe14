"""A worker that was taken over says what it likes: it costs its own runs, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import random
from asyncio import Future, Task
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
import structlog

from spyweb.lua import wire
from spyweb.lua.channel import OVERDUE
from spyweb.lua.session import Code, Request
from spyweb.lua.supervisor import PING_EVERY
from spyweb.lua.wire import Why
from spyweb.lua.worker_process import MOST_STRAYS, UNFINISHED_PINGS
from spyweb.model import Ending, Failure, JobId, Outcome, RunId
from tests.fakes.worker import SLOW, FakeWorker, raw_frame
from tests.fakes.worker_pool import PoolHarness, make_code, open_world

CODE = make_code()
TIMEOUT = 5.0  # seconds of each run
READY, LOADED, OP, END, LOG, PONG, STUCK, PACKED_OP, BRANCH_BEGAN, BRANCH_ENDED = range(10)


@dataclass
class WorkerHarness(PoolHarness):
    async def start(self, run: int = 1, code: Code = CODE) -> Task[Ending]:
        task = await self.begin(run, code, timeout_ms=int(TIMEOUT * 1000))
        await self.hear()
        return task

    async def hear(self) -> None:
        """Let what was said arrive."""
        for _ in range(5):
            await self.clock.turn()

    @property
    def worker(self) -> FakeWorker:
        """The one where the first run began."""
        return next(worker for worker in self.spawner.workers if "begin 1" in worker.story)

    @property
    def is_killed(self) -> bool:
        return "killed" in self.worker.story


@pytest.fixture
async def harness() -> AsyncIterator[WorkerHarness]:
    async with open_world(workers=1) as made:
        yield WorkerHarness(made.clock, made.pool, made.spawner)


@pytest.fixture
async def task(harness: WorkerHarness) -> Task[Ending]:
    return await harness.start()


MALFORMED: dict[str, object] = {
    "an end of too few parts": [END, 1, 0],
    "an end of a kind that there is not": [END, 1, 99, b"", b"", 1, None, False],
    "an end whose CPU is a text": [END, 1, 0, b"", b"", b"much", None, False],
    "an end whose CPU is below zero": [END, 1, 0, b"", b"", -1, None, False],
    "an end whose CPU no database holds": [END, 1, 0, b"", b"", 1 << 60, None, False],
    "an end whose reason is a list": [END, 1, 0, [b"x"], b"", 1, None, False],
    "an end whose result is not packed": [END, 1, 0, b"", b"", 1, [1], False],
    "an end of a run that is no number": [END, [1], 0, b"", b"", 1, None, False],
    "an end with megabytes of reason": [END, 1, 0, b"x" * 100_000, b"", 1, None, False],
    "an op without a name": [OP, 1, 1],
    "an op whose name is a number": [OP, 1, 1, 5, []],
    "an op whose run is a list": [OP, [1], 1, "echo", []],
    "an op whose packed values are a number": [PACKED_OP, 1, 1, "echo", 5, 1],
    "an op whose packed values are not counted": [PACKED_OP, 1, 1, "echo", wire.pack([{}])],
    "an op with a table among its scalars": [OP, 1, 1, "echo", [b"x", {}]],
    "an op with less than no values": [PACKED_OP, 1, 1, "echo", wire.pack([{}]), -1],
    "an op of a branch below zero": [OP, 1, 1, "echo", [b"x"], -1],
    "a packed op of a branch that is a text": [PACKED_OP, 1, 1, "echo", wire.pack([{}]), 1, "one"],
    "a branch in one below zero": [BRANCH_BEGAN, 1, 1, -1, 0],
    "a branch whose time is below zero": [BRANCH_BEGAN, 1, 1, 0, -1],
    "a branch that ended before its first op": [BRANCH_ENDED, 1, 1, -1],
    "a log line of another level": [LOG, 1, "fatal", b"x"],
    "a log line that is a number": [LOG, 1, "info", 5],
    "a log line that is too long": [LOG, 1, "info", b"x" * 50_000],
    "a pong with a thousand VMs": [PONG, 1, 5, [[1, 1]] * 1000],
    "a pong without a size": [PONG, 1],
    "a stuck run without a reason": [STUCK, 1],
    "a VM that was loaded for a reason that is a number": [LOADED, 1, 5],
    "ready for a second time": [READY, []],
    "a kind that there is not": [77, 1],
    "an empty message": [],
    "no message": 5,
    "a table": {"kind": END},
}


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("what", MALFORMED)
async def test_a_worker_that_says_what_none_says_is_killed_and_its_runs_are_lost(
    harness: WorkerHarness, what: str, bulk: bool, task: Task[Ending]
) -> None:
    harness.worker.say_bytes(raw_frame(MALFORMED[what]), bulk=bulk)
    await harness.hear()

    assert harness.is_killed
    assert task.result().outcome is Outcome.LOST
    assert "its worker died: it broke the protocol (" in task.result().reason


async def test_ops_that_wait_for_no_answer_cost_a_worker_its_life(harness: WorkerHarness, task: Task[Ending]) -> None:
    flood = [wire.OpCall(1, number, "echo", []) for number in range(1, 5 * MOST_STRAYS)]

    for frame in wire.small_frames(flood):
        harness.worker.say_bytes(frame)
    await harness.hear()

    assert harness.is_killed
    assert task.result().outcome is Outcome.LOST
    assert len(harness.host.ops) <= MOST_STRAYS + 1


@pytest.mark.parametrize(
    "message",
    [
        wire.OpCall(99, 1, "echo", []),
        wire.OpCall(1, 0, "echo", []),
        wire.RunEnd(99, wire.Ended.SUCCESS, b"", b"", 1, None, False),
        wire.RunStuck(99, Why.NOTHING, 0),
        wire.VmLoaded(99, None),
        wire.Pong(1, 5, []),
    ],
)
async def test_a_flood_of_what_answers_to_nothing_costs_a_worker_its_life(
    harness: WorkerHarness, message: wire.FromWorker, task: Task[Ending]
) -> None:
    for frame in wire.small_frames([message] * (5 * MOST_STRAYS)):
        harness.worker.say_bytes(frame)
    await harness.hear()

    assert harness.is_killed
    assert task.result().outcome is Outcome.LOST


async def test_log_lines_without_credit_cost_a_worker_its_life(harness: WorkerHarness, task: Task[Ending]) -> None:
    harness.worker.log(1, wire.LOG_CREDIT)
    await harness.hear()
    assert "killed" not in harness.worker.story

    harness.worker.log(1, 5 * wire.LOG_CREDIT)
    await harness.hear()
    assert harness.is_killed
    assert task.result().reason == "its worker died: it broke the protocol (log lines beyond its credit)"
    assert len(harness.host.lines) <= 2 * wire.LOG_CREDIT


async def test_half_a_message_is_no_sign_of_life(harness: WorkerHarness, task: Task[Ending]) -> None:
    worker = harness.worker
    worker.answers_pings = False
    worker.say_bytes((1000).to_bytes(4, "little"))

    for _ in range(6):
        worker.say_bytes(b"x")
        await harness.hear()
        await harness.clock.turn(PING_EVERY)

    assert task.result().reason.startswith("its worker died: it answered no ping")
    stats = harness.pool.stats()
    assert (stats.deaths, stats.kills) == (1, 1)


@pytest.mark.parametrize(("size", "bulk"), [(wire.SMALL_FRAME + 1, False), (900 << 20, True)])
async def test_no_frame_is_waited_for_beyond_its_bound(harness: WorkerHarness, size: int, bulk: bool) -> None:
    """That of a big message is what the VMs can hold."""
    task = await harness.start()

    harness.worker.say_bytes(size.to_bytes(4, "little"), bulk=bulk)
    await harness.hear()

    assert harness.is_killed
    assert task.result().outcome is Outcome.LOST


async def test_a_big_message_that_never_ends_is_given_up(harness: WorkerHarness) -> None:
    request = Request(run=RunId(1), code=CODE, timeout_ms=3_600_000, cpu_limit_ms=10_000)
    task = asyncio.create_task(harness.pool.run(request, harness.host))
    await harness.hear()
    harness.worker.say_bytes((1 << 20).to_bytes(4, "little"), bulk=True)

    for _ in range(UNFINISHED_PINGS + 3):
        if not harness.is_killed:
            harness.worker.say_bytes(b"x", bulk=True)
        await harness.hear()
        await harness.clock.turn(PING_EVERY)

    assert task.result().reason.startswith("its worker died: it sent a message that was not complete")


async def test_a_run_that_can_not_be_stopped_says_which_limit_came_first_and_what_it_used(
    harness: WorkerHarness, task: Task[Ending]
) -> None:
    await harness.clock.turn(TIMEOUT)  # the daemon tells it to end; its worker had done so before

    harness.worker.stuck(1, Why.CPU, 4900)
    await harness.hear()

    assert (task.result().failure, task.result().cpu_ms) == (Failure.CPU, 4900)


async def test_a_run_that_cost_its_worker_its_life_shows_its_cpu(harness: WorkerHarness, task: Task[Ending]) -> None:
    harness.worker.step(1, cpu_ms=2500)
    harness.worker.die()
    await harness.hear()

    assert (task.result().outcome, task.result().cpu_ms) == (Outcome.LOST, 2500)


async def test_a_worker_that_closes_a_vm_for_ever_is_replaced(harness: WorkerHarness, task: Task[Ending]) -> None:
    harness.worker.stuck(wire.NO_RUN)
    await harness.hear()
    await harness.clock.turn(5)

    assert harness.is_killed
    assert "could not be stopped" in task.result().reason
    assert len(harness.spawner.living) == 1


# Races, each placed at its exact point


class StubbornFuture(Future[Sequence[object]]):
    """It comes to its end although it was cancelled: its commit was under way."""

    def cancel(self, msg: object = None) -> bool:
        return False


async def test_a_worker_that_dies_between_a_begin_and_its_first_op_loses_an_innocent_run(
    harness: WorkerHarness, task: Task[Ending]
) -> None:
    first = harness.worker
    assert first.story[-1] == "begin 1"

    first.die()
    await harness.hear()

    assert (task.result().outcome, task.result().guilty) == (Outcome.LOST, False)
    assert harness.host.ops == []
    await harness.start(2)
    assert (await harness.finish(2)).outcome is Outcome.SUCCESS


async def test_a_run_whose_begin_was_sent_to_a_worker_that_never_got_ready_begins_elsewhere(
    harness: WorkerHarness,
) -> None:
    harness.spawner.is_mute = True
    harness.spawner.workers[0].die()
    await harness.hear()
    task = await harness.start()
    harness.spawner.is_mute = False

    harness.spawner.workers[1].die()
    await harness.hear()
    await harness.clock.turn(1)

    assert not task.done()
    assert (await harness.finish(1)).outcome is Outcome.SUCCESS


async def test_an_op_that_arrives_with_its_workers_death_is_carried_out_and_its_answer_goes_nowhere(
    harness: WorkerHarness, task: Task[Ending]
) -> None:
    harness.worker.op(1, "echo")
    harness.worker.die()
    await harness.hear()

    assert harness.host.ops == ["echo"]
    assert harness.worker.answers == []
    assert task.result().outcome is Outcome.LOST


@pytest.mark.parametrize("fails", [False, True])
async def test_an_op_that_is_done_after_its_process_died_answers_nobody(
    harness: WorkerHarness, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    late = StubbornFuture()
    monkeypatch.setattr(harness.host, "op", lambda *_: late)
    task = await harness.start()
    worker = harness.worker
    worker.op(1, "store_set")
    await harness.hear()
    worker.die()
    await harness.hear()
    assert task.result().outcome is Outcome.LOST

    if fails:
        late.set_exception(OSError("no disk"))
    else:
        late.set_result([b"done"])
    await harness.hear()

    assert worker.answers == []
    assert complaints == []


async def test_an_op_that_is_done_after_its_run_was_cancelled_answers_nobody_and_the_next_one_is_answered(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, next_ = StubbornFuture(), StubbornFuture()
    answers = iter([late, next_])
    monkeypatch.setattr(harness.host, "op", lambda *_: next(answers))
    await harness.start()
    harness.worker.op(1, "store_set")
    await harness.hear()

    harness.pool.cancel(RunId(1), Why.CANCELLED)
    late.set_result([b"late"])
    await harness.hear()
    assert harness.worker.answers == []

    harness.worker.op(1, "store_get")  # a hook that follows the cancel
    next_.set_result([b"hook"])
    await harness.hear()
    assert harness.worker.answers == [[wire.Form.PLAIN, b"hook"]]
    assert (await harness.finish(1, wire.Ended.CANCELLED)).failure is Failure.CANCELLED


async def test_an_answer_that_crosses_the_cancel_of_its_run_is_sent_once(harness: WorkerHarness) -> None:
    await harness.start()
    harness.worker.op(1, "wait")
    await harness.hear()
    (waiting,) = harness.host.waiting

    waiting.set_result([b"just in time"])  # its callback comes with the loop's next turn, after the cancel
    harness.pool.cancel(RunId(1), Why.CANCELLED)
    await harness.hear()

    assert harness.worker.answers == []
    assert harness.worker.story[-1] == "cancel 1 cancelled"


async def test_an_end_that_crosses_the_cancel_of_its_run_stands(harness: WorkerHarness, task: Task[Ending]) -> None:
    harness.worker.end(1)  # on its way
    harness.pool.cancel(RunId(1), Why.CANCELLED)
    await harness.hear()
    await harness.clock.turn(10)

    assert task.result().outcome is Outcome.SUCCESS
    assert not harness.is_killed


async def test_a_run_that_is_stuck_and_ends_in_one_breath_could_not_be_stopped(harness: WorkerHarness) -> None:
    task = await harness.start()

    harness.worker.say(
        wire.RunStuck(1, Why.CPU, 900), wire.RunEnd(1, wire.Ended.CPU, b"over its limit", b"", 950, None, True)
    )
    await harness.hear()

    assert (task.result().failure, task.result().cpu_ms) == (Failure.CPU, 900)
    assert "could not be stopped" in task.result().reason
    await harness.clock.turn(5)
    assert harness.is_killed
    assert len(harness.spawner.living) == 1


async def test_a_run_that_ends_and_is_told_to_be_stuck_has_ended(harness: WorkerHarness, task: Task[Ending]) -> None:
    harness.worker.say(wire.RunEnd(1, wire.Ended.SUCCESS, b"", b"", 950, None, False), wire.RunStuck(1, Why.CPU, 900))
    await harness.hear()
    await harness.clock.turn(5)

    assert task.result().outcome is Outcome.SUCCESS
    assert not harness.is_killed
    assert not harness.pool.stats().quarantined


async def test_a_run_that_ends_at_the_very_moment_it_is_overdue_is_told_of_once(harness: WorkerHarness) -> None:
    await harness.start()
    harness.pool.cancel(RunId(1), Why.CANCELLED)
    await harness.clock.turn(OVERDUE)  # told that it could not be stopped

    assert (await harness.finish(1, wire.Ended.CANCELLED)).failure is Failure.CANCELLED
    await harness.clock.turn(5)
    assert len(harness.spawner.living) == 1


SLOW_CODE = Code(job=JobId("slow"), generation=1, chunk="jobs/slow.lua", source=SLOW)


async def test_a_run_cancelled_while_its_vm_loads_leaves_the_others_that_wait_for_it(harness: WorkerHarness) -> None:
    first, _ = await harness.start(1, SLOW_CODE), await harness.start(2, SLOW_CODE)
    worker = harness.spawner.workers[0]
    harness.pool.cancel(RunId(1), Why.CANCELLED)

    worker.loaded(1)
    await harness.hear()

    assert first.result().failure is Failure.CANCELLED
    assert worker.story[1:] == ["begin 2"]
    assert (await harness.finish(2)).outcome is Outcome.SUCCESS


async def test_a_run_cancelled_while_its_vm_loads_has_ended_when_its_worker_dies(harness: WorkerHarness) -> None:
    task = await harness.start(1, SLOW_CODE)
    harness.pool.cancel(RunId(1), Why.CANCELLED)
    harness.spawner.workers[0].die()
    await harness.hear()
    await harness.clock.turn(1)

    assert task.result().failure is Failure.CANCELLED
    assert not any(line.startswith(("load", "begin")) for line in harness.spawner.workers[1].story)


async def test_a_run_cancelled_in_the_turn_in_which_its_vm_is_loaded_ends_once(harness: WorkerHarness) -> None:
    await harness.start(1, SLOW_CODE)
    worker = harness.spawner.workers[0]

    worker.loaded(1)
    await harness.hear()
    harness.pool.cancel(RunId(1), Why.CANCELLED)
    await harness.hear()

    assert worker.story[1:] == ["begin 1", "cancel 1 cancelled"]
    assert (await harness.finish(1, wire.Ended.CANCELLED)).failure is Failure.CANCELLED


def mutated(rng: random.Random, value: object) -> object:
    """The same, or something else in its place."""
    if isinstance(value, list) and rng.random() < 0.8:
        changed = [mutated(rng, item) if rng.random() < 0.3 else item for item in value]
        return changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.2 else changed
    junk: list[object] = [
        None, True, -1, 0, 1, 2, 3, 1 << 62, -(1 << 62), 1.5, float("nan"), float("inf"), "text", "echo", "wait", b"",
        b"\xff\xfe", b"\x91\x91\x91", b"x" * 300, [], [[]], [1, 2], {}, {"a": []}, {1: {2: 3}}, [[[[]]]],
        wire.pack([1]),
    ]  # fmt: skip
    return rng.choice(junk)


def forged(rng: random.Random) -> bytes:
    run, op, branch = rng.choice([1, 2, 3, 99]), rng.randrange(5), rng.randrange(-1, 4)
    packed, name = rng.choice([b"", b"\xc1", wire.pack([{}])]), rng.choice(["echo", "wait"])
    messages: list[list[object]] = [
        [OP, run, op, name, [b"value"]],
        [PACKED_OP, run, op, "echo", packed, rng.choice([1, -5, 1 << 40])],
        [END, run, rng.randrange(10), b"reason", b"traceback", 5, wire.pack([1]), rng.random() < 0.5],
        [LOG, run, "info", b"line"],
        [PONG, rng.randrange(4), 100, [[1, 5], [7, 9]]],
        [STUCK, rng.choice([0, run]), rng.randrange(7), 100],
        [LOADED, op, rng.choice([None, "why"])],
        [READY, []],
        [OP, run, op, name, [b"value"], branch],
        [BRANCH_BEGAN, run, branch, rng.randrange(-1, 4), rng.choice([0, 5, -5, 1 << 50])],
        [BRANCH_ENDED, run, branch, rng.randrange(-1, 5)],
    ]
    message = rng.choice(messages)
    whole = raw_frame(message if rng.random() < 0.5 else mutated(rng, message))
    if rng.random() < 0.9:
        return whole
    return rng.choice([rng.randbytes(30), whole[:-1], whole[:3], b"\xff" * 8, bytes(4), whole + b"\x01"])


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_a_worker_says_each_run_ends_and_the_loop_hears_of_no_error(
    harness: WorkerHarness, seed: int
) -> None:
    rng = random.Random(seed)
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with structlog.testing.capture_logs():
        tasks = [await harness.start(run) for run in (1, 2, 3)]
        for _ in range(40):
            for worker in harness.spawner.living:
                worker.say_bytes(forged(rng), bulk=rng.random() < 0.2)
            await harness.clock.turn()
        for _ in range(30):
            await harness.hear()
            await harness.clock.turn(1)

    assert all(task.done() and isinstance(task.result(), Ending) for task in tasks)
    assert complaints == []
