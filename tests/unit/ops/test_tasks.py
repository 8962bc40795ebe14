"""What a run says of its tasks is checked, whatever its worker has checked."""

from __future__ import annotations

import pytest

from spyweb.errors import OpError
from spyweb.model import TaskBegun, TaskRow
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.tasks import LARGEST_OUTPUT, LONGEST_MESSAGE, MOST_TASKS
from spyweb.ops.world import Call
from spyweb.settings.sections import StateSettings
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import ask, make_call, make_world
from tests.fakes.task_rows import FAILED, SKIPPED, begin_run, row, story

NAMES = {1: b"w", 2: b"build", 3: b"w", 4: b"push"}


class Watched:
    """A run of two tasks, and what whoever watches it is told."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.told: list[TaskBegun | TaskRow] = []
        world = make_world(store=self.store, clock=self.clock)
        self.call = make_call(world, tell_task=self.told.append)

    async def begin(self) -> Watched:
        await ask(self.call, "_tasks", NAMES)
        return self

    async def rows(self) -> list[TaskRow]:
        return list((await self.store.tasks.of_runs([self.call.run])).get(self.call.run, ()))


async def test_a_run_is_told_its_folder_and_that_nothing_is_done_yet() -> None:
    assert await ask(make_call(), "_tasks", NAMES) == ["jobs/prices", "local", []]


async def test_the_end_of_a_task_is_a_row_and_whoever_watches_is_told() -> None:
    run = await Watched().begin()
    now_ms = run.clock.now_ms()

    assert await ask(run.call, "_task", 1, b"failed", 2, 1500, b"no luck", b"\x91\x01") == []

    expected = row(
        "push", 1, FAILED, workflow="w", attempts=2, message="no luck", output=b"\x91\x01",
        started_ms=now_ms - 1500, ended_ms=now_ms,
    )  # fmt: skip
    assert await run.rows() == [expected] == run.told


async def test_tasks_that_are_skipped_are_recorded_together() -> None:
    run = await Watched().begin()
    await ask(run.call, "_tasks_skipped", {1: [0, b"stopped"], 2: [1, b"stopped"]})

    assert story(await run.rows()) == ["build skipped", "push skipped"]
    assert [(each.started_ms, each.message) for each in await run.rows()] == [(None, "stopped")] * 2
    assert len(run.told) == 2


async def test_a_run_that_resumes_is_told_what_is_done() -> None:
    run = Watched()
    first = await begin_run(run.store)
    await run.store.tasks.add(first, [row("build", workflow="w", message="fine", output=b"\x91\x05")])
    await run.store.tasks.add(first, [row("push", 1, SKIPPED, workflow="w")])
    second = await begin_run(run.store, resumes=first)
    resuming = make_call(run.call.world, run=second, resumes=True, tell_task=run.told.append)

    _, _, taken = await ask(resuming, "_tasks", NAMES)

    assert taken == [[0, "success", "fine", b"\x91\x05"], [1, "skipped", "", False]]
    assert len(run.told) == 2


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("_task", (2, b"success", 1, 0, b"")),
        ("_task", (-1, b"success", 1, 0, b"")),
        ("_task", (0, b"done", 1, 0, b"")),
        ("_task", (0, b"success", 1, 0, b"", b"x" * (LARGEST_OUTPUT + 1))),
        *(("_tasks_skipped", (rows,)) for rows in ({1: [5, b"why"]}, {1: [0, 1]}, {1: b"x"}, {1: [b"0", b"why"]})),
    ],
)
async def test_what_makes_no_sense_is_refused(name: str, arguments: tuple[object, ...]) -> None:
    run = await Watched().begin()
    with pytest.raises(OpError):
        await ask(run.call, name, *arguments)
    assert await run.rows() == []


TOO_MANY = dict.fromkeys(range(2 * MOST_TASKS + 2), b"a")


@pytest.mark.parametrize("names", [{1: b"w"}, {1: b"w", 2: 7}, {1: b"", 2: b"x" * 201}, TOO_MANY])
async def test_a_plan_that_makes_no_sense_is_refused(names: dict[int, object]) -> None:
    with pytest.raises(OpError):
        await ask(make_call(), "_tasks", names)


async def test_numbers_that_no_task_has_are_held_to_what_one_may_have() -> None:
    run = await Watched().begin()
    await ask(run.call, "_task", 0, b"success", 1 << 40, 1 << 60, b"x" * 9000)
    (row,) = await run.rows()
    assert (row.attempts, len(row.message)) == (1001, LONGEST_MESSAGE)
    assert row.started_ms is not None
    assert row.ended_ms - row.started_ms == 366 * 86_400_000


@pytest.mark.parametrize("text", [b"2", b"-1", b"", b"x", b"\xff", b"1" * 5000])
async def test_the_begin_of_a_task_that_is_none_is_told_to_nobody(text: bytes) -> None:
    run = await Watched().begin()
    OpDispatcher(run.call).log("task", text)
    assert run.told == []


async def test_whoever_watches_is_told_that_a_task_begins() -> None:
    run = await Watched().begin()
    OpDispatcher(run.call).log("task", b"1")
    assert run.told == [TaskBegun(ordinal=1, workflow="w", name="push")]


async def test_an_end_that_can_not_be_stored_is_an_error_of_the_run() -> None:
    run = await Watched().begin()
    await run.store.close()
    with pytest.raises(OpError, match="the end of task 'build' could not be stored"):
        await ask(run.call, "_task", 0, b"success", 1, 0, b"")
    assert run.told == []
    assert run.call.tally.storage_errors == 1


def test_a_call_has_no_tasks_until_its_run_says_so() -> None:
    call: Call = make_call()
    assert list(call.tally.plan) == []


async def test_a_function_of_state_works_on_the_keys_of_an_agent() -> None:
    call = make_call()
    assert await ask(call, "_at", b"web1", b"state.set", 2, b"k", 7) == [True]
    assert await ask(call, "_at", b"web1", b"state.get", 1, b"k") == [7]
    assert await ask(call, "state.get", b"k") == [None]
    assert await ask(make_call(call.world, agent="web1"), "state.get", b"k") == [7]


@pytest.mark.parametrize(("agent", "name"), [(b"web1", b"store_set"), (b"web1", b"state.none"), (b"", b"state.get")])
async def test_nothing_else_works_for_an_agent(agent: bytes, name: bytes) -> None:
    with pytest.raises(OpError, match="expected"):
        await ask(make_call(), "_at", agent, name, 1, b"k")


async def test_where_agents_share_their_keys_there_is_one_namespace() -> None:
    world = make_world(state=StateSettings(shared_agents=True))
    await ask(make_call(world, agent="web1"), "state.set", b"k", 7)
    assert await ask(make_call(world, agent="web2"), "state.get", b"k") == [7]
    assert await ask(make_call(world), "_at", b"web3", b"state.get", 1, b"k") == [7]
