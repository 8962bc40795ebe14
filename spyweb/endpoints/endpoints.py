"""The Lua endpoints: which version of server/init.lua answers, and what becomes of each request.

A request has a VM of its own.  Its answer leaves at once; what its handler deferred goes on after it, in the same run.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from spyweb.clock import Clock
from spyweb.endpoints.exchange import EndpointAnswer, EndpointHost, Modules, answer_in
from spyweb.endpoints.lanes import Lanes
from spyweb.endpoints.limiter import ConcurrencyLimiter
from spyweb.errors import PoolError, Problem
from spyweb.lua.deadlines import Deadlines
from spyweb.lua.procedures import Procedure
from spyweb.lua.session import Code, Host, Request
from spyweb.lua.timeouts import settle, within
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, JobId, Outcome, RunId

LIMIT_S = 30.0  # for an answer
DEFERRED_MS = 300_000  # for what was deferred, after it
CPU_LIMIT_MS = 30_000
AT_ONCE = 64  # requests in VMs, those whose answer has left included
IN_LINE = 1024  # requests that wait for room
PATIENCE_S = 10.0

NOT_FOUND = EndpointAnswer(404, b"Not Found")
ERROR = EndpointAnswer(500, b'{"error": "Internal Server Error"}', {b"Content-Type": b"application/json"})
TOO_SLOW = EndpointAnswer(500, b'{"error": "Script execution timed out"}', {b"Content-Type": b"application/json"})


class Machine(Protocol):
    """What steps VMs (lua/pool.py)."""

    def new_id(self) -> RunId: ...

    def start_fresh(self, request: Request, host: Host, tell: Callable[[Ending], None]) -> None: ...

    def cancel(self, run: RunId, why: Why) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What requests need; all of it is built by the daemon."""

    machine: Machine
    host_for: Callable[[Code, RunId], Host]  # who answers a request's ops, and where its log lines go
    run_ended: Callable[[RunId], None]
    note_failure: Callable[[str, str], None]  # what was asked, and why it failed, with a traceback
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """What answers: proved code, and the modules it has loaded so far."""

    codes: Sequence[Code]  # the same for each worker
    modules: Modules = field(default_factory=dict)

    @property
    def code(self) -> Code:
        return self.codes[0]


class Endpoints:
    def __init__(self, around: Around) -> None:
        self.version: ServerVersion | None = None  # None: there is nothing that could answer
        self.problem: Problem | None = None  # of the file now on disk, when it is not the version that answers
        self._around = around
        self._limiter = ConcurrencyLimiter(around.clock, room=AT_ONCE, line=IN_LINE, patience_s=PATIENCE_S)
        self._limits = Deadlines(around.clock)  # for the answers
        self._running: dict[RunId, JobId] = {}
        self._lanes = Lanes(around.clock)
        self._is_closing = False
        self._idle: Future[None] = get_running_loop().create_future()  # since it is closing

    async def answer(self, asked: Mapping[str, object]) -> EndpointAnswer:
        """Answer a request, as lua/procedures.py describes it.  Raises PoolError when there is no room for it."""
        if not self._limiter.try_to_enter():
            await self._limiter.enter()
        version = self.version
        if version is None or self._is_closing:
            self._limiter.leave()
            return self._without_version(asked)
        return await self._begin(version, asked).answered or ERROR

    async def close(self, grace: float) -> None:
        """Begin nothing more; what runs has so many seconds to end by itself."""
        self._is_closing = True
        if self._running:
            await within(self._around.clock, grace, self._idle)
        for run in list(self._running):
            self._around.machine.cancel(run, Why.STOPPED)
        if self._running:
            await self._idle

    def _without_version(self, asked: Mapping[str, object]) -> EndpointAnswer:
        if self._is_closing:
            raise PoolError("the daemon stops")
        if self.problem is None:
            return NOT_FOUND
        self._around.note_failure(_title(asked), str(self.problem))
        return ERROR

    def _begin(self, version: ServerVersion, asked: Mapping[str, object]) -> EndpointHost:
        """No task, and no future but that of the answer: what follows the run's end is called with it."""
        machine = self._around.machine
        run = machine.new_id()
        code = self._lanes.enter(version.codes, run)
        self._limits.add(run, LIMIT_S, partial(machine.cancel, run, Why.TIMEOUT))
        on_answer = partial(self._limits.drop, run, LIMIT_S)
        exchange = EndpointHost(partial(self._around.host_for, code, run), version.modules, on_answer)
        self._running[run] = code.job
        try:
            machine.start_fresh(_request(code, run, asked), exchange, partial(self._ended, run, asked, exchange))
        except BaseException:
            self._leave(run, exchange)
            raise
        return exchange

    def _ended(self, run: RunId, asked: Mapping[str, object], exchange: EndpointHost, ending: Ending) -> None:
        """At the VM's last step, long after the answer perhaps."""
        try:
            if ending.outcome is Outcome.SUCCESS:
                exchange.answer(answer_in(ending.result))
                return
            self._around.note_failure(_title(asked), f"{ending.reason}\n{ending.traceback}".rstrip())
            exchange.answer(TOO_SLOW if ending.failure in (Failure.TIMEOUT, Failure.CPU) else ERROR)
        finally:
            self._leave(run, exchange)

    def _leave(self, run: RunId, exchange: EndpointHost) -> None:
        if not exchange.answered.done():
            exchange.answer(ERROR)
        self._lanes.leave(self._running.pop(run), run)
        self._limiter.leave()
        if exchange.has_asked:
            self._around.run_ended(run)
        if self._is_closing and not self._running:
            settle(self._idle)


def _request(code: Code, run: RunId, asked: Mapping[str, object]) -> Request:
    return Request(
        run=run,
        code=code,
        timeout_ms=int(LIMIT_S * 1000) + DEFERRED_MS,
        cpu_limit_ms=CPU_LIMIT_MS,
        procedure=Procedure.REQUEST,
        arguments=(asked,),
    )


def _title(asked: Mapping[str, object]) -> str:
    return f"{asked['method']} {asked['path']}"
