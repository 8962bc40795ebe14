"""The channel between the daemon and one run: its ops are carried out by the run's host, their results sent back.

This is the hottest path of the daemon.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, Task, TaskGroup
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from spyweb import limits
from spyweb.clock import Clock
from spyweb.errors import OpError
from spyweb.lua import answer, wire
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.hooks import HOOK_OP
from spyweb.lua.session import Pending, PendingRun
from spyweb.lua.wire import BeginFreshRun, BeginRun, CancelRun, OpCall, PackedOpCall, Why

log = structlog.get_logger()

OVERDUE = 3.0  # seconds after a cancel; the worker says that the run is stuck after one: this is for one that can't

Results = Sequence[object]


class RunChannel:
    """One run under way in a worker.  It has at most one op under way.

    `overdue` is called when the run was told to end and did not.
    """

    def __init__(
        self,
        pending: PendingRun,
        vm: int,
        *,
        connection: WorkerConnection,
        clock: Clock,
        tasks: TaskGroup,
        overdue: Callable[[RunChannel], None],
    ) -> None:
        self.pending = pending
        self.vm = vm
        self.why = Why.NOTHING  # why it has been told to end
        self.run = pending.request.run
        self.asked_in = 0  # which batch of messages brought its latest op
        self._host = pending.host
        self._connection = connection
        self._clock = clock
        self._tasks = tasks
        self._overdue = overdue
        self._timer = clock.call_later(pending.request.timeout_ms / 1000, lambda: self.cancel(Why.TIMEOUT))
        self._awaited: Future[Any] | None = None  # what the op under way waits for
        self._result: Callable[[], Results]  # and what then becomes of it, unless it is a task
        self._number = 0  # of the op under way
        self._op = ""  # its name

    def begin(self, template: int | None = None) -> None:
        """Tell the worker to begin the run, in a VM that it has or in one that it makes from this template."""
        request = self.pending.request
        arguments = answer.pack(request.arguments)
        message: BeginRun | BeginFreshRun
        if template is None:
            message = BeginRun(request.run, self.vm, request.procedure, arguments, request.cpu_limit_ms)
        else:
            message = BeginFreshRun(request.run, self.vm, template, request.procedure, arguments, request.cpu_limit_ms)
        self._connection.send_sized(message, len(arguments))

    def cancel(self, why: Why) -> None:
        """Tell the run to end for this reason.  Only the first reason counts."""
        if self.why is not Why.NOTHING:
            return
        self.why = why
        self._timer.cancel()
        self._timer = self._clock.call_later(OVERDUE, lambda: self._overdue(self))
        self._drop_op()
        self._connection.send(CancelRun(self.run, int(why)))

    def close(self) -> None:
        """Stop waiting for answers and timers: the run has ended."""
        self._timer.cancel()
        self._drop_op()

    def log(self, level: str, text: bytes) -> None:
        try:
            self._host.log(level, text)
        except Exception:  # one op: a bug in it costs a log line, not the worker
            log.exception("a log line was lost", run=self.run, job=self.pending.request.code.job)

    @property
    def is_asking(self) -> bool:
        """Return whether an op of the run is under way."""
        return self._awaited is not None

    def ask(self, call: OpCall | PackedOpCall) -> None:
        """Carry out an op and answer it, now or when it is done."""
        if call.number <= self._number:  # a big one, overtaken on the other socket after its run was killed
            return
        self._drop_op()
        self._number = call.number
        self._op = call.name
        try:
            awaitable = self._host.op(call.name, _unpack(call) if isinstance(call, PackedOpCall) else call.values)
            if isinstance(awaitable, Pending):
                self._await(awaitable.source, awaitable.result)
            elif isinstance(awaitable, Future):
                self._await(awaitable, awaitable.result)
            else:
                task = self._tasks.create_task(_contained(awaitable))
                self._await(task, partial(_outcome, task))
        except (Exception, CancelledError) as error:  # noqa: BLE001 - one op: whatever it was, the script is told
            self._refuse(error)

    def _await(self, source: Future[Any], result: Callable[[], Results]) -> None:
        if source.done():
            self._give(result())
            return
        self._awaited = source
        self._result = result
        source.add_done_callback(self._answer)

    def _answer(self, source: Future[Any]) -> None:
        if source is not self._awaited:  # dropped meanwhile: nobody waits for its error
            if not source.cancelled():
                source.exception()
            return
        self._awaited = None
        try:
            self._give(self._result())
        except (Exception, CancelledError) as error:  # noqa: BLE001 - one op
            self._refuse(error)

    def _give(self, results: Results) -> None:
        message, size = answer.resume(self.run, self._number, results)
        if size > wire.LARGEST:
            raise OpError(f"{self._op}: {size} bytes can't be handed over at once, {wire.LARGEST} at most")
        self._connection.send_sized(message, size)

    def _refuse(self, error: BaseException) -> None:
        value = getattr(error, "value", None) if isinstance(error, OpError) else None
        if value is not None:
            self._connection.send_sized(*answer.resume_with_error_value(self.run, self._number, value))
        else:
            self._connection.send_sized(*answer.resume_with_error(self.run, self._number, self._text_of(error)))

    def _text_of(self, error: BaseException) -> str:
        if isinstance(error, OpError):
            return str(error)
        if isinstance(error, CancelledError):
            return f"{self._op} was cancelled"
        log.error("an op failed", op=self._op, run=self.run, job=self.pending.request.code.job, exc_info=error)
        return f"internal error in {self._op}"

    def _drop_op(self) -> None:
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.cancel()


async def _contained(awaitable: Awaitable[Results]) -> Results | Exception:
    """Return an op's results, or its error: raised in a task group, it would end the daemon."""
    try:
        return await awaitable
    except Exception as error:  # noqa: BLE001 - one op
        return error


def _outcome(task: Task[Results | Exception]) -> Results:
    outcome = task.result()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _unpack(call: PackedOpCall) -> list[object]:
    """Unpack the arguments of an op.  Raises OpError when they hold more values than the event loop has time for."""
    try:
        if call.name == HOOK_OP:
            _measure("what it returned", call.elements, limits.HOOK_ELEMENTS)
            return wire.unpack_outer(call.packed, call.elements)
        _measure(f"{call.name}: what it is given", call.elements, limits.OP_ELEMENTS)
        return wire.unpack(call.packed)
    except (msgspec.DecodeError, RecursionError) as error:
        raise OpError(f"these values can't leave the script: {error}") from error


def _measure(what: str, elements: int, limit: int) -> None:
    if elements > limit:
        raise OpError(limits.too_large(what, elements, limit, "values"))
