"""`spyweb replay`: run a job's file as it is now against the record of an earlier run, without touching the world."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from msgspec import structs

from spyweb.cli import output
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, answer_of
from spyweb.clock import RealClock
from spyweb.daemon.world import engine_info
from spyweb.errors import ConfigError, ExitCode, Refused
from spyweb.logs.secrets import secrets_in
from spyweb.lua import wire
from spyweb.lua.endings import result_text
from spyweb.lua.pool import open_pool
from spyweb.lua.recording import RecordedOp, decode_record
from spyweb.lua.session import EngineInfo, Procedure, Request
from spyweb.model import Ending, Run, RunId
from spyweb.runs.live import code_of
from spyweb.settings.units import DAY_MS
from spyweb.specs.parse import JobFile
from spyweb.testing.replay import ReplayHost
from spyweb.views.ops import RunOps, call_text, recorded_ops
from spyweb.views.runs import LogLine, log_line
from spyweb.views.source import error_place
from spyweb.words import counted


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
    project, clock, log = project_of(context), RealClock(), list[LogLine]()
    found, file = find_recorded(project, RunId(run))

    def note(level: str, text: bytes) -> None:
        log.append(line := log_line(level, text, clock.now_ms()))
        if form is Format.TABLE:
            output.show_log_line(output.log_stamp(line.at_ms), line.level, line.text)

    async def watch(op: RecordedOp) -> None:
        if step:
            await asyncio.to_thread(output.wait_for_enter, f"op {op.number}: {call_text(op.name, op.given)}")

    code, record, secrets = code_of(file, 1), decode_record(found.record or b""), secrets_in(os.environ)
    request = Request(
        run=found.run.id,
        code=code,
        timeout_ms=DAY_MS if step else file.spec.timeout_ms,
        cpu_limit_ms=file.spec.cpu_limit_ms,
        procedure=Procedure(record.procedure),
        arguments=wire.unpack(record.arguments),
        reads=record.reads,
    )
    init = structs.replace(engine_info(project.settings, None), env=record.variables, engine=record.engine)
    make_host = partial(ReplayHost, found.run, record, secrets=secrets, log=note, watch=watch)
    ending, host = asyncio.run(_replayed(init, request, make_host))
    recorded, now = end_words(found.run, found.run.result), end_words(ending, result_text(ending.result))
    is_same = not host.is_over and host.hiding.hide(recorded) == host.hiding.hide(now)
    asks_another = host.difference is not None and host.difference.now
    place = error_place(ending.reason, ending.traceback, code.chunk_shown_as) if asks_another else None
    if form is Format.JSON:
        result = {"run": run, "job": found.run.job, "is_same": is_same, "answered": host.answered}
        result |= {"difference": host.difference, "place": place, "obstacle": host.obstacle}
        output.show_json({**result, "recorded": recorded, "now": None if host.is_over else now, "log": log})
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


async def _replayed(
    init: EngineInfo, request: Request, make_host: Callable[..., ReplayHost]
) -> tuple[Ending, ReplayHost]:
    async with open_pool(clock=RealClock(), workers=1, init=init) as pool:
        host = make_host(stop=partial(pool.cancel, request.run))
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
        output.show_verdict("same" if is_same else "differs", f"{same}{'' if is_same else ', and another end'}")
