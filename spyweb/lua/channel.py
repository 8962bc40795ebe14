"""The ops of one run under way: each is carried out by the run's host, and its results sent back.

This is the hottest path of the daemon: a store op costs it one dictionary, one future and two small lists.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, Task
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from spyweb import limits
from spyweb.clock import Clock, Handle
from spyweb.errors import OpError
from spyweb.lua import answer, wire
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.deadlines import Deadlines
from spyweb.lua.hooks import HOOK_OP
from spyweb.lua.session import Pending, PendingRun
from spyweb.lua.wire import ToWorker, Why

log = structlog.get_logger()

OVERDUE = 3.0  # seconds after a CANCEL; the worker reports STUCK after one: this is for one that can't

_PLAIN = int(wire.Form.PLAIN)  # plain ints: an enum member costs more to encode and to compare
_BEGIN = int(ToWorker.BEGIN)
_FRESH = int(ToWorker.FRESH)
_CANCEL = int(ToWorker.CANCEL)

Results = Sequence[object]
Spawn = Callable[[Coroutine[object, object, Results | Exception]], "Task[Results | Exception]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all runs in one worker share."""

    connection: WorkerConnection
    clock: Clock
    timeouts: Deadlines
    spawn: Spawn  # starts a task in the pool's group
    overdue: Callable[[RunChannel], None]  # it was told to end and has not


class RunChannel:
    """One run under way.

    A run has at most one op under way.
    """

    def __init__(self, pending: PendingRun, vm: int, terms: Terms) -> None:
        self.pending = pending
        self.vm = vm
        self.why = Why.NOTHING  # why it has been told to end
        self.run = pending.request.run
        self._host = pending.host
        self._terms = terms
        self._connection = terms.connection
        self._timeout_s = pending.request.timeout_ms / 1000
        self._patience: Handle | None = None  # with it, since it was told to end
        terms.timeouts.add(self.run, self._timeout_s, self._time_out)
        self._pending: Future[Any] | None = None  # what the op under way waits for
        self._result: Callable[[], Results]  # and what then becomes of it, unless it is a task
        self._number = 0  # of the op under way
        self._op = ""  # its name
        self.asked_in = 0  # which batch of messages brought its latest op

    def begin(self) -> None:
        request = self.pending.request
        arguments = answer.pack(request.arguments)
        message = [_BEGIN, request.run, self.vm, request.procedure, arguments, request.cpu_limit_ms]
        self._connection.send_sized(message, len(arguments))

    def begin_fresh(self, template: int) -> None:
        """In a VM that the worker makes for it."""
        request = self.pending.request
        arguments = answer.pack(request.arguments)
        message = [_FRESH, request.run, self.vm, template, request.procedure, arguments, request.cpu_limit_ms]
        self._connection.send_sized(message, len(arguments))
        self._connection.hurry()

    def cancel(self, why: Why) -> None:
        """Have it end for this reason.  The first reason stands."""
        if self.why is not Why.NOTHING:
            return
        self.why = why
        self._terms.timeouts.drop(self.run, self._timeout_s)
        self._patience = self._terms.clock.call_later(OVERDUE, self._be_overdue)
        self._drop_pending()
        self._connection.send([_CANCEL, self.run, int(why)])

    def close(self) -> None:
        """It has ended: nobody waits for an answer any more."""
        self._terms.timeouts.drop(self.run, self._timeout_s)
        if self._patience is not None:
            self._patience.cancel()
        if self._pending is not None:
            self._drop_pending()

    def _time_out(self) -> None:
        self.cancel(Why.TIMEOUT)

    def _be_overdue(self) -> None:
        self._terms.overdue(self)

    def log(self, level: str, text: bytes) -> None:
        try:
            self._host.log(level, text)
        except Exception:  # one op: a bug in it costs a log line, not the worker
            log.exception("a log line was lost", run=self.run, job=self.pending.request.code.job)

    @property
    def is_asking(self) -> bool:
        """Whether an op of it is under way."""
        return self._pending is not None

    def ask(self, message: list[Any]) -> None:
        """Answer an OP: run, number, name, Form, value... or what is packed and how many values are in it."""
        number = message[2]
        if number <= self._number:  # a big one, overtaken on the other socket: its run was killed and has gone on
            return
        if self._pending is not None:
            self._drop_pending()
        self._number = number
        self._op = name = message[3]
        try:
            arguments = message[5:] if message[4] == _PLAIN else _unpack(name, message[5], message[6])
            awaitable = self._host.op(name, arguments)
            if isinstance(awaitable, Pending):
                self._await(awaitable.source, awaitable.result)
            elif isinstance(awaitable, Future):
                self._await(awaitable, awaitable.result)
            else:
                self._pending = task = self._terms.spawn(_contained(awaitable))
                task.add_done_callback(self._answer_with_task)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - one op: whatever it was, the script is told
            self._refuse(error)

    def _await(self, source: Future[Any], result: Callable[[], Results]) -> None:
        if source.done():
            self._give(result())
            return
        self._pending = source
        self._result = result
        source.add_done_callback(self._answer)

    def _answer(self, source: Future[Any]) -> None:
        if source is not self._pending:  # dropped meanwhile: its error has nobody to be told to
            if not source.cancelled():
                source.exception()
            return
        self._pending = None
        try:
            self._give(self._result())
        except (Exception, CancelledError) as error:  # noqa: BLE001 - one op
            self._refuse(error)

    def _answer_with_task(self, task: Task[Results | Exception]) -> None:
        if task is not self._pending:
            return
        self._pending = None
        outcome = CancelledError() if task.cancelled() else task.result()
        if isinstance(outcome, BaseException):
            self._refuse(outcome)
            return
        try:
            self._give(outcome)
        except Exception as error:  # noqa: BLE001 - one op
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

    def _drop_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()


async def _contained(awaitable: Awaitable[Results]) -> Results | Exception:
    """An op's error is the script's affair: in a task group it would end the daemon."""
    try:
        return await awaitable
    except Exception as error:  # noqa: BLE001 - one op
        return error


def _unpack(op: str, packed: bytes, elements: int) -> list[object]:
    """Unpack the arguments, unless they hold more values than the loop has time for."""
    try:
        if op == HOOK_OP:
            _measure("what it returned", elements, limits.HOOK_ELEMENTS)
            return wire.unpack_outer(packed, elements)
        _measure(f"{op}: what it is given", elements, limits.OP_ELEMENTS)
        return wire.unpack(packed)
    except (msgspec.DecodeError, RecursionError) as error:
        raise OpError(f"these values can't leave the script: {error}") from error


def _measure(what: str, elements: int, limit: int) -> None:
    if elements > limit:
        raise OpError(limits.too_large(what, elements, limit, "values"))
