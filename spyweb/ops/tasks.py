"""Keep a run's tasks: it tells all of them at its start, then each one's end (lua/worker/runtime/workflows.lua).

Private ops.  What a worker passes is checked here, whatever its Lua has checked: a row is shown to people.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from spyweb import limits
from spyweb.errors import OpError, StoreError
from spyweb.files import Forbidden
from spyweb.lua.session import NOTHING, Results, StoreAnswer
from spyweb.model import JobId, RunId, TaskBegun, TaskRow, TaskStatus
from spyweb.ops.arguments import Int, Table, Text, Value
from spyweb.ops.files.names import reason_of
from spyweb.ops.op import CATALOGUE, FILES, OpEffect, op
from spyweb.ops.store import count_failure
from spyweb.ops.world import Call
from spyweb.permissions.policy import JOB
from spyweb.store.model.runs import RunPlan

MOST_TASKS = 10_000  # in one run
MOST_DRAWN = 300  # tasks of a plan that is kept with its run
MOST_MODULES = 200  # of a run, whose digests are kept
MOST_NEEDS = 3_000  # dependencies of all tasks of such a plan
LONGEST_NEEDS = 2_000  # bytes
LONGEST_NAME = 200  # bytes
LONGEST_MESSAGE = 4_096  # bytes; the rest is cut
LARGEST_OUTPUT = 65_536  # bytes, packed
MOST_ATTEMPTS = 1_001
LONGEST_MS = 366 * 86_400_000  # more than any task lasts
STATUSES = {status.value.encode(): status for status in TaskStatus}


@op(name="_tasks", effect=OpEffect.NONE)
async def begin(call: Call, names: Table, needs: Table | None = None) -> tuple[str, str, list[list[object]]]:
    """Take the plan of a run: workflow and name of each task, and, as text, the numbers of those that it depends on.

    Returns the job's folder, its agent, and the finished tasks.
    """
    given = list(names.values())
    if len(given) > 2 * MOST_TASKS:
        raise OpError(f"more than {MOST_TASKS} tasks in one run")
    texts = [name.decode("utf-8", "replace") for name in given if isinstance(name, bytes) and len(name) <= LONGEST_NAME]
    if len(texts) < len(given) or len(texts) % 2:
        raise OpError("_tasks: a workflow and a name expected for each task")
    call.tally.plan = list(zip(texts[::2], texts[1::2], strict=True))
    await call.world.store.tasks.declare(call.run, _plan(call, list(needs.values()) if needs else []))
    taken = await call.world.store.tasks.take_over(call.run, call.tally.plan) if call.resumes else ()
    if call.resumes:
        earlier = await call.world.store.tasks.chain(call.run)
        await asyncio.to_thread(call.world.artifacts.carry_over, call.job, earlier, call.run)
    for row in taken:
        call.tell_task(row)
    return call.folder, call.agent, [[row.ordinal, row.status.value, row.message, row.output or False] for row in taken]


def _plan(call: Call, needs: Sequence[object]) -> RunPlan:
    """Return the plan to record: with its tasks, unless they are too many to be drawn."""
    count = len(call.tally.plan)
    modules = call.world.sources.dependencies(call.job, call.generation)
    code = {"": call.code, **{path: digest for path, digest in list(modules.items())[:MOST_MODULES] if digest}}
    if len(needs) != count or count > MOST_DRAWN:
        return RunPlan(code=code)
    numbers = [_numbers(text, count) for text in needs]
    if sum(map(len, numbers)) > MOST_NEEDS:
        return RunPlan(code=code)
    return RunPlan(code=code, tasks=call.tally.plan, needs=numbers)


def _numbers(text: object, count: int) -> list[int]:
    parts = text[:LONGEST_NEEDS].split() if isinstance(text, bytes) else []
    return [number for number in (int(part) for part in parts if part.isdigit() and len(part) < 6) if number < count]


@op(name="_task", effect=OpEffect.NONE)
def end(  # noqa: PLR0913 - an op's arguments cross one by one
    call: Call, ordinal: Int, status: Text, attempts: Int, took_ms: Int, message: Text, output: Text | None = None
) -> StoreAnswer[None]:
    """Record the end of a task; answered once it is committed."""
    took_ms, ended_ms = min(max(took_ms, 0), LONGEST_MS), call.world.clock.now_ms()
    row = _row(call, ordinal, status, message, ended_ms)
    if output is not None and len(output) > LARGEST_OUTPUT:
        raise OpError(limits.too_large("the output of a task", len(output), LARGEST_OUTPUT))
    attempts, started_ms = min(max(attempts, 0), MOST_ATTEMPTS), ended_ms - took_ms
    return _record(call, [replace(row, attempts=attempts, started_ms=started_ms, output=output)])


@op(name="_tasks_skipped", effect=OpEffect.NONE)
def skip(call: Call, rows: Table) -> StoreAnswer[None]:
    """Record tasks that are not performed, each with the reason."""
    ended_ms = call.world.clock.now_ms()
    found = []
    for row in rows.values():
        match row:
            case [int() as ordinal, bytes() as reason]:
                found.append(_row(call, ordinal, b"skipped", reason, ended_ms))
            case _:
                raise OpError("_tasks_skipped: a task and a reason expected")
    return _record(call, found)


@op(name="_artifacts", needs=FILES, effect=OpEffect.LOOKS)
async def keep_artifacts(call: Call, patterns: Table) -> int:
    """Keep the files of the job's folder that match; return their number."""
    return await _copied("artifacts", call.world.artifacts.keep, call, patterns)


@op(name="_consume", needs=FILES, effect=OpEffect.LOOKS)
async def consume_artifacts(call: Call, patterns: Table) -> int:
    """Copy matching artifacts of this run's tasks into the job's folder; return their number."""
    return await _copied("consumes", call.world.artifacts.give_back, call, patterns)


async def _copied(
    what: str, copy: Callable[[JobId, RunId, str, Sequence[str]], list[str]], call: Call, patterns: Table
) -> int:
    call.permit(what, "folder", JOB)
    texts = [pattern.decode("utf-8", "replace") for pattern in patterns.values() if isinstance(pattern, bytes)]
    if call.is_dry:
        call.log("info", f"dry run: {what}: would copy what matches {', '.join(texts)}".encode("utf-8", "replace"))
        return 0
    try:
        return len(await asyncio.to_thread(copy, call.job, call.run, call.folder, texts))
    except (OSError, Forbidden) as error:
        raise OpError(f"{what}: {reason_of(error)}") from error


@op(name="_at", effect=OpEffect.LOOKS)
def at_agent(  # noqa: PLR0913 - the arguments of any positional function
    call: Call,
    agent: Text,
    name: Text,
    count: Int,
    first: Value = None,
    second: Value = None,
    third: Value = None,
    fourth: Value = None,
) -> object:
    """Call a function of `state` for a task that is delegated to an agent: its keys are that agent's."""
    operation = CATALOGUE.get(name.decode("ascii", "replace"))
    if operation is None or not operation.name.startswith("state.") or not 0 < len(agent) <= LONGEST_NAME:
        raise OpError("_at: an agent and a function of state expected")
    given = (first, second, third, fourth)[: max(count, 0)]
    called = replace(call, agent=agent.decode("utf-8", "replace"))
    return operation.begin(called, given, operation.check_for(call))


def begun(call: Call, text: bytes) -> TaskBegun | None:
    """Return the task that a worker says begins now; None where the run has none of that number."""
    plan, number = call.tally.plan, text.decode("ascii", "replace")
    ordinal = int(number) if number.isdecimal() and len(number) <= len(str(MOST_TASKS)) else len(plan)
    if ordinal >= len(plan):
        return None
    workflow, name = plan[ordinal]
    return TaskBegun(ordinal=ordinal, workflow=workflow, name=name)


def _row(call: Call, ordinal: int, status: bytes, message: bytes, ended_ms: int) -> TaskRow:
    """Return the row of a task that was never begun, or what any row of it has."""
    if not 0 <= ordinal < len(call.tally.plan):
        raise OpError(f"the run has no task {ordinal}")
    if status not in STATUSES:
        raise OpError("_task: a status expected")
    workflow, name = call.tally.plan[ordinal]
    return TaskRow(
        ordinal=ordinal,
        workflow=workflow,
        name=name,
        status=STATUSES[status],
        attempts=0,
        started_ms=None,
        ended_ms=ended_ms,
        message=message[:LONGEST_MESSAGE].decode("utf-8", "replace"),
    )


def _record(call: Call, rows: Sequence[TaskRow]) -> StoreAnswer[None]:
    def results_of(source: Future[None]) -> Results:
        try:
            source.result()
        except StoreError as error:
            count_failure(call, "_task", error)
            raise OpError(f"the end of task '{rows[0].name}' could not be stored: {error}") from error
        for row in rows:
            call.tell_task(row)
        return NOTHING

    return StoreAnswer(call.world.store.tasks.add(call.run, rows), results_of)
