"""The Lua endpoints of a daemon, where their log lines and failures go, and what proves new code of jobs too."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from functools import partial

import structlog
from msgspec import Struct

from spyweb.daemon.runtime import JobRuntime, note_line
from spyweb.endpoints import Endpoints
from spyweb.errors import PoolError, ScriptError
from spyweb.logs.job import JobLogs
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Procedure, Request
from spyweb.model import Ending, JobSpec, Outcome, RunId
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.world import Call, World
from spyweb.reload.proof import Prover
from spyweb.reload.server import ServerReloader
from spyweb.settings import Settings
from spyweb.specs.server_file import FOLDER, SERVER, find_server
from spyweb.web.app import Site
from spyweb.web.connections import ConnectionLimiter, tcp_limits
from spyweb.web.serve import TcpListeners
from spyweb.web.ui import FOLDER as UI_FOLDER

LOG, ERRORS = "server.log", "error.log"

LIMIT_MS = 30_000  # a file of a monitor that takes longer to load would hold up every other change
_WHERE = re.compile(r"(?s)(?P<file>[^\n]*?):(?P<line>\d+): (?P<reason>.*)")

log = structlog.get_logger()


class Server(Struct, frozen=True, kw_only=True):
    """Holds the endpoints of a daemon, and the reloader that keeps them up to date with the files."""

    endpoints: Endpoints
    reloader: ServerReloader
    prover: Prover  # the same for the jobs
    listeners: TcpListeners

    def site(self, settings: Settings) -> Site:
        root = settings.root
        return Site(
            endpoints=self.endpoints,
            ui=root / UI_FOLDER,
            hosts=settings.server.hosts,
            has_content=lambda: (root / UI_FOLDER).is_dir() or find_server(root) is not None,
        )


async def open_server(stack: AsyncExitStack, runtime: JobRuntime) -> Server:
    """Build the endpoints and their reloader, which answer nothing before its first look at the disk."""
    root, clock = runtime.settings.root, runtime.clock
    lines = await stack.enter_async_context(JobLogs(root, clock, LOG))
    failures = await stack.enter_async_context(JobLogs(root, clock, ERRORS))

    def host_for(code: Code, run: RunId) -> Host:
        def write_line(level: str, text: bytes) -> None:
            if level != "print":
                lines.write(FOLDER, level, text)
            note_line(SERVER, run, level, text)

        call = Call(
            world=runtime.world,
            job=SERVER,
            run=run,
            generation=code.generation,
            folder=FOLDER,
            memory_limit=code.memory_limit,
            log=write_line,
            policy=runtime.settings.server.permissions,
        )
        return OpDispatcher(call)

    def note_failure(asked: str, reason: str) -> None:
        failures.write(FOLDER, "error", f"{asked}: {reason}")
        log.error("an endpoint failed", asked=asked, reason=reason)

    endpoints = Endpoints(
        pool=runtime.pool,
        clock=clock,
        tasks=runtime.tasks,
        host_for=host_for,
        run_ended=runtime.world.call_ended,
        note_failure=note_failure,
    )
    stack.push_async_callback(endpoints.close, 0)
    prover = Prover(
        pool=runtime.pool,
        sources=runtime.world.sources,
        load=partial(execute, runtime.pool, runtime.world, runtime.job_logs),
        find_selector_problem=runtime.extractor.find_selector_problem,
        clock=clock,
    )
    reloader = ServerReloader(
        root=root,
        endpoints=endpoints,
        prover=prover,
        pool=runtime.pool,
        sources=runtime.world.sources,
        workers=runtime.settings.daemon.workers,
        policy=runtime.settings.server.permissions,
    )
    listeners = TcpListeners(runtime.settings.server, ConnectionLimiter(tcp_limits(), clock))
    return Server(endpoints=endpoints, reloader=reloader, prover=prover, listeners=listeners)


async def execute(pool: Pool, world: World, job_logs: JobLogs, spec: JobSpec, code: Code) -> None:
    """Execute the files.  Raises ScriptError when one fails, PoolError when the execution did not end by itself."""

    def job_log(level: str, text: bytes) -> None:
        if level != "print":
            job_logs.write(spec.folder, level, text, run)

    run = pool.new_id()
    call = Call(
        world=world,
        job=spec.id,
        run=run,
        generation=code.generation,
        folder=spec.folder,
        memory_limit=spec.memory_limit,
        agent=spec.agent,
        on_store_error=spec.on_store_error,
        log=job_log,
        policy=spec.policy,
    )
    request = Request(
        run=run,
        code=code,
        timeout_ms=min(spec.timeout_ms, LIMIT_MS),
        cpu_limit_ms=spec.cpu_limit_ms,
        procedure=Procedure.LOAD,
    )
    try:
        ending = await pool.run(request, OpDispatcher(call))
    finally:
        world.call_ended(run)
    refuse_failure(code, ending)


def refuse_failure(code: Code, ending: Ending) -> None:
    """Raise the error of an execution that failed, with the file and line it names."""
    if ending.outcome is Outcome.SUCCESS:
        return
    if ending.outcome is not Outcome.FAILED:
        raise PoolError(f"{code.chunk} was not executed to its end: {ending.reason}")
    where = _WHERE.fullmatch(ending.reason)
    if where is None:
        raise ScriptError(code.chunk, None, f"failed while it was loaded: {ending.reason}")
    file, line = code.chunk_shown_as(where["file"]), int(where["line"])
    raise ScriptError(file, line, f"failed while it was loaded: {where['reason']}")
