"""Execute a monitor's files in the VM that its cycles will use, to prove them before a newer version lives."""

from __future__ import annotations

import re

from spyweb.errors import PoolError, ScriptError
from spyweb.logs.job import JobLogs
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Procedure, Request
from spyweb.model import Ending, JobSpec, Outcome
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.world import Call, World

LIMIT_MS = 30_000  # a file that takes longer to load would hold up every other change

_WHERE = re.compile(r"(?s)(?P<file>[^\n]*?):(?P<line>\d+): (?P<reason>.*)")


async def execute(pool: Pool, world: World, job_logs: JobLogs, spec: JobSpec, code: Code) -> None:
    """Execute the files.  Raises ScriptError when one fails, PoolError when the execution did not end by itself.

    What they log goes where the job's runs log.
    """

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
