"""Carries out the ops of one chain of calls of a run, its own or a branch's, and sends their results back.

This is the hottest path of the daemon.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, Task, TaskGroup
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any

import msgspec
import structlog

from spyweb import limits
from spyweb.errors import OpError
from spyweb.lua import answer, wire
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.hooks import HOOK_OP
from spyweb.lua.session import Lineage, Pending, PendingRun, Results
from spyweb.lua.wire import OpCall, PackedOpCall

log = structlog.get_logger()


class OpSlot:
    """A place for one op: a chain of calls has at most one under way."""

    __slots__ = (
        "_asked",
        "_awaited",
        "_connection",
        "_host",
        "_lineage",
        "_op",
        "_pending",
        "_result",
        "_run",
        "_tasks",
        "_times",
        "asked_in",
        "number",
    )

    def __init__(
        self, pending: PendingRun, connection: WorkerConnection, tasks: TaskGroup, lineage: Lineage = ()
    ) -> None:
        self.asked_in = 0  # which batch of messages brought its latest op
        self.number = 0  # of its latest op
        self._pending = pending
        self._run = pending.request.run
        self._host = pending.host
        self._times = pending.op_times
        self._asked = 0.0  # when its latest op came
        self._connection = connection
        self._tasks = tasks
        self._lineage = lineage
        self._awaited: Future[Any] | None = None  # what the op under way waits for
        self._result: Callable[[], Results]  # and what then becomes of it, unless it is a task
        self._op = ""  # its name

    @property
    def is_asking(self) -> bool:
        """Say whether an op is under way."""
        return self._awaited is not None

    def ask(self, call: OpCall | PackedOpCall) -> None:
        """Carry out an op and answer it, now or when it is done."""
        if call.number <= self.number:  # a big one, overtaken on the other socket: its run was killed and has gone on
            return
        self.drop_op()
        self.number = call.number
        self._op = call.name
        self._asked = perf_counter()
        try:
            values = _unpack(call) if isinstance(call, PackedOpCall) else call.values
            awaitable = self._host.op(call.name, values, self._lineage)
            if isinstance(awaitable, Pending):
                self._await(awaitable.source, awaitable.result)
            elif isinstance(awaitable, Future):
                self._await(awaitable, awaitable.result)
            else:
                task = self._tasks.create_task(_contained(awaitable))
                self._await(task, partial(_outcome, task))
        except (Exception, CancelledError) as error:  # noqa: BLE001 - one op: whatever it was, the script is told
            self._refuse(error)

    def drop_op(self) -> None:
        """Cancel the op under way, if there is one; nobody waits for its answer any more."""
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.cancel()

    def _await(self, source: Future[Any], result: Callable[[], Results]) -> None:
        if source.done():
            self._give(result())
            return
        self._awaited = source
        self._result = result
        source.add_done_callback(self._answer)

    def _answer(self, source: Future[Any]) -> None:
        if source is not self._awaited:  # dropped meanwhile: its error has nobody to be told to
            if not source.cancelled():
                source.exception()
            return
        self._awaited = None
        try:
            self._give(self._result())
        except (Exception, CancelledError) as error:  # noqa: BLE001 - one op
            self._refuse(error)

    def _give(self, results: Results) -> None:
        message, size = answer.resume(self._run, self.number, results)
        if size > wire.LARGEST:
            raise OpError(f"{self._op}: {size} bytes can't be handed over at once, {wire.LARGEST} at most")
        self._connection.send_sized(message, size)
        self._time()

    def _refuse(self, error: BaseException) -> None:
        self._time()
        value = getattr(error, "value", None) if isinstance(error, OpError) else None
        if value is not None:
            self._connection.send_sized(*answer.resume_with_error_value(self._run, self.number, value))
        else:
            self._connection.send_sized(*answer.resume_with_error(self._run, self.number, self._text_of(error)))

    def _time(self) -> None:
        histogram = self._times.get(self._op)  # None: a worker may ask for any name
        if histogram is not None:
            histogram.observe(perf_counter() - self._asked)

    def _text_of(self, error: BaseException) -> str:
        if isinstance(error, OpError):
            return str(error)
        if isinstance(error, CancelledError):
            return f"{self._op} was cancelled"
        log.error("an op failed", op=self._op, run=self._run, job=self._pending.request.code.job, exc_info=error)
        return f"internal error in {self._op}"


async def _contained(awaitable: Awaitable[Results]) -> Results | Exception:
    """Return an op's error, which is told to the script: in a task group it would end the daemon."""
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
    """Unpack the arguments, unless they hold more values than the loop has time for."""
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
