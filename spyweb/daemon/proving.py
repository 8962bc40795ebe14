"""Execute a monitor's files in the VM that its cycles will use, to prove them before a newer version lives."""

from __future__ import annotations

import re

from spyweb.daemon.runtime import Runtime
from spyweb.errors import PoolError, ScriptError
from spyweb.lua.session import Code, Host, Request
from spyweb.model import Ending, JobSpec, Outcome, RunId
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.world import Call

LIMIT_MS = 30_000  # a file that takes longer to load would hold up every other change

_WHERE = re.compile(r"(?s)(?P<file>[^\n]*?):(?P<line>\d+): (?P<reason>.*)")


async def execute(parts: Runtime, spec: JobSpec, code: Code) -> None:
    """Raises ScriptError when a file fails, PoolError when it could not be tried to the end."""
    call = parts.pool.new_id()
    request = Request(
        run=call,
        code=code,
        timeout_ms=min(spec.timeout_ms, LIMIT_MS),
        cpu_limit_ms=spec.cpu_limit_ms,
        procedure="load",
    )
    try:
        ending = await parts.pool.run(request, host_of(parts, spec, code, call))
    finally:
        parts.world.call_ended(call)
    refuse_failure(code, ending)


def host_of(parts: Runtime, spec: JobSpec, code: Code, call: RunId) -> Host:
    """What the files log goes where the job's runs log."""

    def job_log(level: str, text: bytes) -> None:
        if level != "print":
            parts.job_logs.write(spec.folder, level, text)

    world = Call(
        world=parts.world,
        job=spec.id,
        run=call,
        generation=code.generation,
        folder=spec.folder,
        memory_limit=spec.memory_limit,
        agent=spec.agent,
        on_store_error=spec.on_store_error,
    )
    return OpDispatcher(world, job_log)


def refuse_failure(code: Code, ending: Ending) -> None:
    if ending.outcome is Outcome.SUCCESS:
        return
    if ending.outcome is not Outcome.FAILED:
        raise PoolError(f"{code.chunk} was not executed to its end: {ending.reason}")
    where = _WHERE.fullmatch(ending.reason)
    if where is None:
        raise ScriptError(code.chunk, None, f"failed while it was loaded: {ending.reason}")
    file, line = code.chunk_shown_as(where["file"]), int(where["line"])
    raise ScriptError(file, line, f"failed while it was loaded: {where['reason']}")
