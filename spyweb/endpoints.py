"""The version of server/init.lua that answers, and each request from its arrival to its run's end.

A request has its own VM.  Its answer is sent at once; deferred functions of its handler run after it, in the same run.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, TaskGroup, get_running_loop
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import structlog
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.cooperative import set_done, within
from spyweb.errors import PoolError, Problem
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Lineage, Procedure, Request, Unstarted
from spyweb.lua.wire import Why
from spyweb.model import Failure, JobId, Outcome, RunId
from spyweb.ownership import NO_TRUST

LIMIT_S = 30.0  # for an answer
DEFERRED_MS = 300_000  # for deferred functions, after it
CPU_LIMIT_MS = 30_000
AT_ONCE = 64  # requests in VMs, also after their answer was sent
IN_LINE = 1024  # requests that wait for a VM
PATIENCE_S = 10.0

RESPOND_OP, REQUIRE_OP = "_respond", "_require"

log = structlog.get_logger()

Results = Sequence[object]
Modules = dict[bytes, Results]  # results of `_require`, by name


class EndpointAnswer(Struct, frozen=True):
    """The answer of a handler, with its headers."""

    status: int
    body: bytes
    headers: Mapping[bytes, bytes] = {}  # a Struct copies the default


JSON = {b"Content-Type": b"application/json"}
NOT_FOUND = EndpointAnswer(404, b"Not Found")
ERROR = EndpointAnswer(500, b'{"error": "Internal Server Error"}', JSON)
TOO_SLOW = EndpointAnswer(500, b'{"error": "Script execution timed out"}', JSON)


class ServerVersion(Struct, frozen=True, kw_only=True):
    """One proved version of the code that answers requests, and the modules that it has loaded so far."""

    codes: Sequence[Code]  # the same for each worker
    modules: Modules = {}

    @property
    def code(self) -> Code:
        return self.codes[0]


@dataclass(kw_only=True, eq=False)
class Endpoints:
    """Answers requests by the newest version that it was given."""

    pool: Pool
    clock: Clock
    tasks: TaskGroup
    host_for: Callable[[Code, RunId], Host]  # makes the host that answers a run's ops and takes its log lines
    run_ended: Callable[[RunId], None]  # called for each run that had ops
    note_failure: Callable[[str, str], None]  # takes a request's method and path, and its error with a traceback
    is_trusted: Callable[[], bool] = lambda: True  # whether this node of a cluster may begin something

    version: ServerVersion | None = None  # None: no code can answer
    problem: Problem | None = None  # of the file now on disk, when another version answers
    _running: set[RunId] = field(default_factory=set)
    _busy: Counter[JobId] = field(default_factory=Counter)  # requests in each worker, by the job of the worker
    _is_closing: bool = False

    def __post_init__(self) -> None:
        self._limiter = ConcurrencyLimiter(room=AT_ONCE, line=IN_LINE, patience_s=PATIENCE_S)
        self._idle: Future[None] = get_running_loop().create_future()  # done when the last run has ended during a close

    async def answer(self, fields: Mapping[str, object]) -> EndpointAnswer:
        """Answer a request, as lua/session.py describes it.  Raises PoolError when there is no room for it.

        A client that disconnects before the answer changes nothing: a handler that has begun runs to its end.
        """
        if not self.is_trusted():
            raise PoolError(NO_TRUST)
        await self._limiter.enter()
        if self._is_closing or self.version is None:
            self._limiter.leave()
            if self._is_closing:
                raise PoolError("the daemon is stopping")
            if self.problem is None:
                return NOT_FOUND
            self.note_failure(_title(fields), str(self.problem))
            return ERROR
        run = self.pool.new_id()
        code = min(self.version.codes, key=lambda code: self._busy[code.job])
        answered: Future[EndpointAnswer] = get_running_loop().create_future()
        self._running.add(run)
        self._busy[code.job] += 1
        self.tasks.create_task(self._run(run, code, fields, self.version.modules, answered), name=f"endpoint {run}")
        return await answered

    async def close(self, grace: float) -> None:
        """Take no more requests, and give those under way `grace` seconds to end."""
        self._is_closing = True
        if self._running:
            await within(self.clock, grace, self._idle)
        for run in list(self._running):
            self.pool.cancel(run, Why.STOPPED)
        if self._running:
            await self._idle

    async def _run(
        self, run: RunId, code: Code, fields: Mapping[str, object], modules: Modules, answered: Future[EndpointAnswer]
    ) -> None:
        """Carry out the run of one request, which may end long after its answer."""
        timer = self.clock.call_later(LIMIT_S, partial(self.pool.cancel, run, Why.TIMEOUT))
        host = EndpointHost(partial(self.host_for, code, run), modules, answered, on_answer=timer.cancel)
        request = Request(
            run=run,
            code=code,
            timeout_ms=int(LIMIT_S * 1000) + DEFERRED_MS,
            cpu_limit_ms=CPU_LIMIT_MS,
            procedure=Procedure.REQUEST,
            arguments=(fields,),
        )
        try:
            ending = await self.pool.run(request, host, is_fresh=True)
            if ending.outcome is Outcome.SUCCESS:
                host.answer(read_answer(ending.result))
            else:
                self.note_failure(_title(fields), f"{ending.reason}\n{ending.traceback}".rstrip())
                host.answer(TOO_SLOW if ending.failure in (Failure.TIMEOUT, Failure.CPU) else ERROR)
        except Exception:  # boundary: one request
            log.exception("internal error in the run of an endpoint", asked=_title(fields))
        finally:
            host.answer(ERROR)  # if none was sent yet
            timer.cancel()
            self._running.remove(run)
            self._busy[code.job] -= 1
            self._limiter.leave()
            if host.made is not None:
                self.run_ended(run)
            if self._is_closing and not self._running:
                set_done(self._idle)


@dataclass(slots=True, eq=False)
class EndpointHost:
    """Hosts the run of one request: takes its answer from the op `_respond`, and passes every other op on.

    Modules that earlier requests of the version have loaded come from `modules`: so every request of a version sees the
    same code, even while files are being saved.
    """

    make_host: Callable[[], Host]
    modules: Modules
    answered: Future[EndpointAnswer]
    on_answer: Callable[[], None]
    made: Host | None = None  # most requests have no op, and need none

    @property
    def _host(self) -> Host:
        if self.made is None:
            self.made = self.make_host()
        return self.made

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Results]:
        if name == RESPOND_OP:
            self._respond(arguments)
            return _done(())
        if name == REQUIRE_OP:
            return self._require(arguments)
        return self._host.op(name, arguments, lineage)

    def end_branch(self, lineage: Lineage) -> None:
        if self.made is not None:
            self.made.end_branch(lineage)

    def log(self, level: str, text: bytes) -> None:
        self._host.log(level, text)

    def answer(self, answer: EndpointAnswer) -> None:
        """Pass on the first answer, and ignore later ones."""
        if not self.answered.done():
            self.answered.set_result(answer)
            self.on_answer()

    def _respond(self, arguments: Sequence[object]) -> None:
        if not arguments:  # the handler has raised: the end of the run has the error
            self.answer(ERROR)
            return
        status, headers, body = arguments
        fields = cast("dict[bytes, bytes]", headers or {})
        self.answer(EndpointAnswer(cast(int, status), cast(bytes, body), fields))

    def _require(self, arguments: Sequence[object]) -> Awaitable[Results]:
        known = self.modules.get(cast(bytes, arguments[0]))
        return Unstarted(partial(self._load, arguments)) if known is None else _done(known)

    async def _load(self, arguments: Sequence[object]) -> Results:
        results = await self._host.op(REQUIRE_OP, arguments)
        return self.modules.setdefault(cast(bytes, arguments[0]), results)


class ConcurrencyLimiter:
    """Limits the requests under way; a limited number of further requests wait, for a limited time."""

    def __init__(self, *, room: int, line: int, patience_s: float) -> None:
        self._room = asyncio.Semaphore(room)
        self._line = line
        self._waiting = 0
        self._patience_s = patience_s

    async def enter(self) -> None:
        """Wait for a free place; every caller that enters must leave.  Raises PoolError when none is free in time."""
        if not self._room.locked():
            await self._room.acquire()  # at once: a timeout would cost a fifteenth of a short answer
            return
        if self._waiting >= self._line:
            raise PoolError(f"too many requests: {self._line} are waiting")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience_s):
                await self._room.acquire()
        except TimeoutError as error:
            raise PoolError(f"too many requests: no room within {self._patience_s:g} s") from error
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._room.release()


def read_answer(result: object) -> EndpointAnswer:
    """Read the answer from the result of a run: a pair of status and body."""
    if not isinstance(result, list) or len(result) != 2:
        return ERROR
    status, body = result
    return EndpointAnswer(status, body)


def _title(fields: Mapping[str, object]) -> str:
    return f"{fields['method']} {fields['path']}"


def _done(results: Results) -> Future[Results]:
    future: Future[Results] = get_running_loop().create_future()
    future.set_result(results)
    return future
