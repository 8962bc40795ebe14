"""Any workflow, with any failures and killed at any point, ends as a plain model of it says.

The tasks run in a real worker over a real database.  A crash is placed before an op has been carried out or after its
commit: then the run is cut off, and the next one resumes it.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from spyweb.lua.session import Unstarted
from spyweb.lua.wire import Why
from spyweb.model import Ending, JobId, Outcome, RunId, RunState, TaskRow, TaskStatus, Trigger
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.world import Call
from spyweb.runs.followups import resume
from spyweb.runs.records import run_of
from spyweb.store.model.runs import Change, End, NewRun
from tests.fakes.scripts import Scripts, open_scripts

JOB = JobId("a")
BODIES = {
    "ok": "return true, '', {n = this.name}",
    "unchanged": "return true, '', {changed = false}",
    "fail": "return false, 'no'",
    "error": "error('no')",
    "flaky": "return this.attempt == 2, 'once more'",
    "skip": "error('never')",
}
ENDS = {"fail": "failed", "error": "failed", "skip": "passed", "unchanged": "unchanged"}  # the others are a success
RECORDING = ("_task", "_tasks_skipped", "_tasks")


@dataclass(frozen=True)
class Task:
    name: str
    kind: str  # of BODIES
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Workflow:
    tasks: tuple[Task, ...]  # in the order of their definition
    stops: bool
    at_once: int

    @property
    def source(self) -> str:
        lines = [
            f"""task("{task.name}"):depends_on{{{", ".join(f'"{name}"' for name in task.needs)}}}"""
            f""":retries(1):retry_delay(0):run_if(function() return {str(task.kind != "skip").lower()} end)"""
            f""":command(function(this, _, input) log("begin " .. this.name)"""
            f""" for name, output in pairs(input) do assert(output.n == nil or output.n == name) end"""
            f""" if {self.at_once} > 1 then sleep({index % 3}) end log("end " .. this.name) {BODIES[task.kind]} end)"""
            for index, task in enumerate(self.tasks)
        ]
        names = ", ".join(f'"{task.name}"' for task in self.tasks)
        policy = "stop" if self.stops else "continue"
        config = f'config{{max_parallel_tasks = {self.at_once}, on_failure = "{policy}"}}'
        return "\n".join([*lines, f'workflow("w"):tasks{{{names}}}:{config}'])


def model_of(workflow: Workflow) -> dict[str, str]:
    """How the tasks end, one after the other, each after what it needs."""
    ends: dict[str, str] = {}
    is_stopped = False

    def perform(task: Task) -> str:
        if is_stopped or any(ends[name] in ("failed", "skipped") for name in task.needs):
            return "skipped"
        return ENDS.get(task.kind, "success")

    for task in in_order(workflow):
        ends[task.name] = perform(task)
        is_stopped = is_stopped or (workflow.stops and ends[task.name] == "failed")
    return {name: "skipped" if end == "passed" else end for name, end in ends.items()}


def in_order(workflow: Workflow) -> Iterator[Task]:
    done: set[str] = set()
    by_name = {task.name: task for task in workflow.tasks}

    def visit(task: Task) -> Iterator[Task]:
        if task.name not in done:
            for name in task.needs:
                yield from visit(by_name[name])
            done.add(task.name)
            yield task

    for task in workflow.tasks:
        yield from visit(task)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    count = draw(st.integers(1, 7))
    names = [f"t{index}" for index in range(count)]
    tasks = []
    for index, name in enumerate(names):
        needs = draw(st.lists(st.sampled_from(names[:index]), unique=True, max_size=3)) if index else []
        tasks.append(Task(name, draw(st.sampled_from(sorted(BODIES))), tuple(needs)))
    return Workflow(tuple(draw(st.permutations(tasks))), draw(st.booleans()), draw(st.integers(1, 3)))


@dataclass(frozen=True)
class Crash:
    at: int  # of the recording ops of its run, from 0 on
    is_committed: bool  # before that op is carried out, or once its commit is known and the run is not


class CrashingHost(OpDispatcher):
    """Serves a run until it is cut off."""

    def __init__(self, call: Call, scripts: Scripts, crash: Crash | None) -> None:
        super().__init__(call)
        self._scripts = scripts
        self._run = call.run
        self._crash = crash
        self._count = 0

    def op(self, name: str, arguments: Sequence[object], lineage: tuple[int, ...] = ()) -> Awaitable[Sequence[object]]:
        if name not in RECORDING or self._crash is None:
            return super().op(name, arguments, lineage)
        self._count += 1
        if self._count <= self._crash.at:
            return super().op(name, arguments, lineage)
        return Unstarted(lambda: self._cut_off(name, arguments, lineage))

    async def _cut_off(self, name: str, arguments: Sequence[object], lineage: tuple[int, ...]) -> Sequence[object]:
        assert self._crash
        if self._crash.is_committed and self._count == self._crash.at + 1:
            await super().op(name, arguments, lineage)
        asyncio.get_running_loop().call_soon(self._scripts.cancel, self._run, Why.STOPPED)
        never: Future[Sequence[object]] = asyncio.get_running_loop().create_future()
        return await never


@dataclass(frozen=True)
class Attempt:
    ending: Ending
    rows: Sequence[TaskRow]
    said: Sequence[str]  # `begin t1`, `end t1`

    @property
    def done(self) -> set[str]:
        """What need not be done again."""
        return {row.name for row in self.rows if row.status is not TaskStatus.FAILED and row.started_ms is not None}

    @property
    def begun(self) -> set[str]:
        return {line.split()[1] for line in self.said if line.startswith("begin")}


async def perform(scripts: Scripts, workflow: Workflow, new: NewRun, crash: Crash | None) -> tuple[Attempt, RunId]:
    scripts.lines.clear()
    (run,) = await scripts.store.runs.record(Change(new=[new]))
    assert run is not None
    call = scripts.call(run, JOB, resumes=new.trigger.resumes is not None)
    request = scripts.request(run, workflow.source, JOB, 20_000)
    ending = await scripts.pool.run(request, CrashingHost(call, scripts, crash))
    await scripts.store.runs.record(Change(end=[End(run=run, ended_ms=1, outcome=ending.outcome)]))
    scripts.world.run_ended(run)
    rows = (await scripts.store.tasks.of_runs([run])).get(run, ())
    return Attempt(ending, rows, scripts.texts("info")), run


async def see_through(scripts: Scripts, workflow: Workflow, crashes: Sequence[Crash]) -> list[Attempt]:
    """Run it, and go on after each crash, until a run ends by itself."""
    new = NewRun(job=JOB, state=RunState.RUNNING, trigger=Trigger(type="manual"), started_ms=1)
    attempts = []
    for crash in (*crashes, None):
        attempt, run = await perform(scripts, workflow, new, crash)
        attempts.append(attempt)
        if attempt.ending.outcome is not Outcome.STOPPED:
            break
        new = structs.replace(resume(run_of(run, new)), state=RunState.RUNNING, started_ms=1, follows=None)
    return attempts


def check(workflow: Workflow, attempts: Sequence[Attempt]) -> None:
    done: set[str] = set()
    for attempt in attempts:
        assert not attempt.begun & done, "what was recorded as done is done again"
        check_order(workflow, attempt, done)
        done |= attempt.done
    last = attempts[-1]
    ends = {row.name: row.status.value for row in last.rows}
    assert ends.keys() == {task.name for task in workflow.tasks}
    if workflow.at_once == 1 or not workflow.stops:
        assert ends == model_of(workflow)
    failed = {name for name, end in ends.items() if end == "failed"}
    assert last.ending.outcome is (Outcome.FAILED if failed else Outcome.SUCCESS)
    if failed:
        first, _, others = last.ending.reason.partition(" (")[0].partition(", also ")
        assert {first.partition(":")[0], *filter(None, others.split(", "))} == failed
        assert f"({len(failed)} of {len(workflow.tasks)} task" in last.ending.reason


def check_order(workflow: Workflow, attempt: Attempt, done: set[str]) -> None:
    """A task begins when what it needs has ended, in this run or as an earlier one has recorded."""
    needs = {task.name: task.needs for task in workflow.tasks}
    kinds = {task.name: task.kind for task in workflow.tasks}
    ended: set[str] = set()
    under_way: set[str] = set()
    for line in attempt.said:
        what, name = line.split()
        if what == "begin":
            assert all(need in ended or need in done or kinds[need] == "skip" for need in needs[name])
            under_way.add(name)
            assert len(under_way) <= workflow.at_once
        else:
            ended.add(name)
            under_way.discard(name)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def scripts(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    opened = open_scripts(Path(tmp_path_factory.mktemp("tasks")), workers=1)
    yield runner.run(opened.__aenter__())
    runner.run(opened.__aexit__(None, None, None))


CRASHES = st.lists(st.builds(Crash, at=st.integers(0, 8), is_committed=st.booleans()), max_size=3)
SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@pytest.mark.timeout(120)
@SETTINGS
@given(workflow=workflows(), crashes=CRASHES)
def test_any_workflow_ends_as_the_model_says_wherever_it_is_cut_off(
    runner: asyncio.Runner, scripts: Scripts, workflow: Workflow, crashes: list[Crash]
) -> None:
    check(workflow, runner.run(see_through(scripts, workflow, crashes)))
