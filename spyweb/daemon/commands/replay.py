"""`spyweb replay`: run a job's file as it is now against the record of an earlier run, without touching the world.

Its ops are answered as they were, in the same order, as long as the script asks for the same ones.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import Condition, Future, get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated

import typer
from msgspec import Struct, structs

from spyweb.cli import output
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, answer_of
from spyweb.clock import RealClock
from spyweb.daemon.world import engine_info
from spyweb.errors import ConfigError, ExitCode, OpError, Refused
from spyweb.logs.secrets import secrets_in
from spyweb.lua import wire
from spyweb.lua.channel import pack
from spyweb.lua.endings import result_text
from spyweb.lua.pool import open_pool
from spyweb.lua.recording import RecordedOp, RunRecord, decode_record
from spyweb.lua.session import Lineage, Procedure, Request, Results, Unstarted
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, Outcome, Run, RunId
from spyweb.runs.live import code_of
from spyweb.runs.recordings import Hiding
from spyweb.settings.sections import Settings
from spyweb.settings.units import DAY_MS
from spyweb.specs.parse import JobFile
from spyweb.subjects.runs.service import recorded_ops
from spyweb.views.runs import LogLine, RunOps, call_text, log_line
from spyweb.views.source import error_place
from spyweb.words import counted

# Why a run was ended while it waited, by its failure or its outcome.
STOPPED_BY: dict[Failure | Outcome | None, Why] = {
    Failure.TIMEOUT: Why.TIMEOUT,
    Failure.CANCELLED: Why.CANCELLED,
    Outcome.LOST: Why.STOPPED,
    Outcome.STOPPED: Why.STOPPED,
}
SETTLING_S = 0.2  # in which a script does what follows its last answer


def replay(
    context: typer.Context,
    run: Annotated[int, typer.Argument(metavar="RUN", help="The number of a recorded run.", show_default=False)],
    step: Annotated[bool, typer.Option("--step", help="Wait for Enter before the answer of each op.")] = False,
    form: Output = Format.TABLE,
) -> ExitCode:
    """Run a job's file again on what a recorded run was answered.

    Nothing reaches the world: each op is answered as it was in that run, and so are clocks and chance.  Shows the log,
    where the script first asks for something else, and how it ends.  The exit code is 1 where that is otherwise than
    recorded.
    """
    output.log_only_errors()
    project = project_of(context)
    found, file = find_recorded(project, RunId(run))
    ending, host = asyncio.run(perform(project.settings, found, file, step=step, is_shown=form is Format.TABLE))
    recorded, now = end_words(found.run, found.run.result), end_words(ending, result_text(ending.result))
    is_same = not host.is_over and host.hiding.hide(recorded) == host.hiding.hide(now)
    difference, place = host.difference, None
    if difference and difference.now:
        place = error_place(ending.reason, ending.traceback, code_of(file, 1).chunk_shown_as)
    if form is Format.JSON:
        result = {"run": run, "job": found.run.job, "is_same": is_same, "answered": host.answered}
        result |= {"difference": difference, "place": place, "obstacle": host.obstacle}
        output.show_json({**result, "recorded": recorded, "now": None if host.is_over else now, "log": host.lines})
    else:
        show(host, is_same=is_same, place=place)
        output.show_fields([("recorded", recorded), ("now", "not led to its end" if host.is_over else now)])
    return ExitCode.OK if is_same else ExitCode.FAILED


def find_recorded(project: Project, run: RunId) -> tuple[RunOps, JobFile]:
    """Return the record of a run and the file of its job.  Raises Refused where one is missing, ConfigError."""
    target = f"/api/runs/{run}/ops?record=1"
    found = answer_of(project.stored(), target, RunOps, lambda store: recorded_ops(store, run), None)
    if found is None:
        raise Refused(f"there is no run {run}")
    job, scanned = found.run.job, project.offline.scanned
    if job in scanned.broken:
        raise ConfigError(list(scanned.broken[job]))
    if job not in scanned.jobs:
        raise Refused(f"run {run} was of {job}, and there is no such job any more")
    return found, scanned.jobs[job]


async def perform(
    settings: Settings, found: RunOps, file: JobFile, *, step: bool, is_shown: bool
) -> tuple[Ending, ReplayHost]:
    record = decode_record(found.record or b"")
    init = structs.replace(engine_info(settings, None), env=record.variables, engine=record.engine)
    request = Request(
        run=found.run.id,
        code=code_of(file, 1),
        timeout_ms=DAY_MS if step else file.spec.timeout_ms,
        cpu_limit_ms=file.spec.cpu_limit_ms,
        procedure=Procedure(record.procedure),
        arguments=record.arguments,
        reads=record.reads,
    )
    async with open_pool(clock=RealClock(), workers=1, init=init) as pool:
        host = ReplayHost(found.run, record, partial(pool.cancel, request.run), step=step, is_shown=is_shown)
        ending = await pool.run(request, host)
        host.conclude()
        return ending, host


def end_words(end: Run | Ending, result: str) -> str:
    return ": ".join(filter(None, (end.outcome, end.reason, result)))


def show(host: ReplayHost, *, is_same: bool, place: tuple[str, int] | None) -> None:
    same = f"{counted(host.answered, 'op')} as recorded"
    if difference := host.difference:
        at = f" at {place[0]}:{place[1]}" if place else ""
        output.show_verdict("differs", f"{same}, then op {difference.op} is another{at}")
        output.show_fields([("recorded", difference.recorded or "none"), ("now", difference.now or "none")])
    elif host.obstacle:
        output.show_verdict("unknown", f"{same}, then {host.obstacle}")
    else:
        output.show_verdict("same" if is_same else "differs", same if is_same else f"{same}, and another end")


class Difference(Struct, frozen=True, kw_only=True):
    """Where a script goes another way than in the recorded run."""

    op: int
    recorded: str  # the call; empty: there was none
    now: str  # the same


class ReplayHost:
    def __init__(
        self, run: Run, record: RunRecord, stop: Callable[[Why], None], *, step: bool = False, is_shown: bool = False
    ) -> None:
        self.difference: Difference | None = None
        self.obstacle = ""  # why the record does not lead further
        self.answered = 0
        self.lines: list[LogLine] = []  # of the log
        self.hiding = Hiding(secrets_in(os.environ))
        self._left_out = record.left_out
        self._due: dict[Lineage, deque[RecordedOp]] = {}  # what is still to be asked for, by branch
        for op in sorted(record.ops, key=lambda op: op.number):
            self._due.setdefault(op.lineage, deque()).append(op)
        self._unanswered = deque(
            op for op in record.ops if op.status != "unanswered"
        )  # so far, in the order of their answers
        self._turn = Condition()
        self._stopped_by = STOPPED_BY.get(run.failure or run.outcome)
        self._stop, self._step, self._is_shown = stop, step, is_shown

    @property
    def is_over(self) -> bool:
        return bool(self.difference or self.obstacle)

    def log(self, level: str, text: bytes) -> None:
        if level in ("task", "env") or self.is_over:
            return
        line = log_line(level, text, RealClock().now_ms())
        self.lines.append(line)
        if self._is_shown:
            output.show_log_line(output.log_stamp(line.at_ms), line.level, line.text)

    def end_branch(self, lineage: Lineage) -> None:
        pass

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Results]:
        if self.is_over:
            raise OpError("the replay is over")
        due = self._due.get(lineage)
        if not due and self._left_out:
            return self._end_of_record()
        expected, given = due.popleft() if due else None, self._as_recorded(name, arguments)
        if not expected or expected.name != name or expected.given not in (None, given):  # None: too large to be known
            return self._differ(expected, call_text(name, given))
        if expected.status != "unanswered":
            return Unstarted(partial(self._answer, expected))
        self._stop_as_recorded()
        return get_running_loop().create_future()

    def conclude(self) -> None:
        """Note, once the script has ended, that the recorded run went on."""
        left = [ops[0] for ops in self._due.values() if ops]
        if left and not self.is_over:
            self._differ(min(left, key=lambda op: op.number), "")
        elif self._left_out and not self.is_over:
            self._end_of_record()

    def _stop_as_recorded(self) -> None:
        """Stop the run, as the recorded one was, once it has asked for all that was recorded, and has the answers."""
        if self._stopped_by and not self._unanswered and not any(self._due.values()):
            get_running_loop().call_later(SETTLING_S, self._stop, self._stopped_by)

    def _as_recorded(self, name: str, arguments: Sequence[object]) -> list[object]:
        given = wire.unpack(pack(arguments))
        for _ in range(2):  # as in a record
            given = self.hiding.hide_given(name, given)
        return given

    async def _answer(self, op: RecordedOp) -> Results:
        async with self._turn:
            await self._turn.wait_for(lambda: self._unanswered[0] is op)
            if self._step:
                await asyncio.to_thread(output.wait_for_enter, f"op {op.number}: {call_text(op.name, op.given)}")
            if op.answer is None:
                return await self._end(f"the answer of op {op.number}, {op.name}, was too large to be recorded")
            self._unanswered.popleft()
            self.answered += 1
            self._turn.notify_all()
        self._stop_as_recorded()
        if op.status == "ok":
            return list(op.answer)
        value = op.answer[0]
        raise OpError(value.decode("utf-8", "surrogateescape")) if isinstance(value, bytes) else OpError(value=value)

    def _differ(self, expected: RecordedOp | None, now: str) -> Future[Results]:
        recorded = call_text(expected.name, expected.given) if expected else ""
        number = expected.number if expected else self.answered + 1
        self.difference = Difference(op=number, recorded=recorded, now=now)
        return self._end()

    def _end_of_record(self) -> Future[Results]:
        return self._end(f"the record ends: {counted(self._left_out, 'later op')} had no room in it")

    def _end(self, obstacle: str = "") -> Future[Results]:
        self.obstacle = obstacle
        self._stop(Why.CANCELLED)
        return get_running_loop().create_future()
