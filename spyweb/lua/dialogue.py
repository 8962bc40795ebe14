"""The ops of one run under way: each is carried out by the run's host, and its results sent back.

This is the hottest path of the daemon: a store op costs it one dictionary, one future and two small lists.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, Task
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import cast

import msgspec
import structlog

from spyweb.errors import OpError
from spyweb.lua import answer, wire
from spyweb.lua.link import Link
from spyweb.lua.session import Order
from spyweb.lua.wire import ToWorker, Why

log = structlog.get_logger()

_PLAIN = int(wire.Form.PLAIN)  # plain ints: an enum member costs more to encode and to compare
_BEGIN = int(ToWorker.BEGIN)
_CANCEL = int(ToWorker.CANCEL)

Results = Sequence[object]
Spawn = Callable[[Coroutine[object, object, Results | Exception]], "Task[Results | Exception]"]


class Dialogue:
    """One run under way.

    A run has at most one op under way.
    """

    def __init__(self, order: Order, vm: int, link: Link, spawn: Spawn) -> None:
        self.order = order
        self.vm = vm
        self.why = Why.NOTHING  # why it has been told to end
        self._run = order.request.run
        self._host = order.host
        self._link = link
        self._spawn = spawn
        self._pending: Future[Results] | Task[Results | Exception] | None = None
        self._op = ""  # the op under way
        self._is_big = False

    def begin(self) -> None:
        request = self.order.request
        arguments = answer.pack(request.arguments)
        message = [_BEGIN, request.run, self.vm, request.procedure, arguments, request.cpu_limit_ms]
        self._is_big = len(arguments) > wire.BULK
        self._link.send_sized(message, len(arguments))

    def cancel(self, why: Why) -> None:
        """Have it end for this reason.  The first reason stands."""
        if self.why is not Why.NOTHING:
            return
        self.why = why
        self._drop_pending()
        message: list[object] = [_CANCEL, self._run, int(why)]
        if self._is_big:
            self._link.send_bulk(message)  # on the small socket it could overtake its BEGIN
        else:
            self._link.send(message)

    def close(self) -> None:
        """It has ended: nobody waits for an answer any more."""
        self._drop_pending()

    def log(self, level: str, text: bytes) -> None:
        try:
            self._host.log(level, text)
        except Exception:  # one op: a bug in it costs a log line, not the worker
            log.exception("a log line was lost", run=self._run, job=self.order.request.code.job)

    def ask(self, message: list[object]) -> None:
        """Answer an OP: run, name, Form, value..."""
        self._op = name = cast(str, message[2])
        try:
            arguments = message[4:] if message[3] == _PLAIN else _unpack(message[4])
            awaitable = self._host.op(name, arguments)
            if not isinstance(awaitable, Future):
                self._pending = task = self._spawn(_contained(awaitable))
                task.add_done_callback(self._answer_with_task)
            elif awaitable.done():
                self._give(awaitable.result())
            else:
                self._pending = awaitable
                awaitable.add_done_callback(self._answer)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - one op: whatever it was, the script is told
            self._refuse(error)

    def _answer(self, future: Future[Results]) -> None:
        if future is not self._pending:  # dropped meanwhile: its error has nobody to be told to
            if not future.cancelled():
                future.exception()
            return
        self._pending = None
        try:
            self._give(future.result())
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
        self._link.send_sized(*answer.resume(self._run, results))

    def _refuse(self, error: BaseException) -> None:
        value = getattr(error, "value", None) if isinstance(error, OpError) else None
        if value is not None:
            self._link.send_sized(*answer.resume_with_error_value(self._run, value))
        else:
            self._link.send_sized(*answer.resume_with_error(self._run, self._text_of(error)))

    def _text_of(self, error: BaseException) -> str:
        if isinstance(error, OpError):
            return str(error)
        if isinstance(error, CancelledError):
            return f"{self._op} was cancelled"
        log.error("an op failed", op=self._op, run=self._run, job=self.order.request.code.job, exc_info=error)
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


def _unpack(packed: object) -> list[object]:
    try:
        return wire.unpack(cast(bytes, packed))
    except (msgspec.DecodeError, RecursionError) as error:
        raise OpError(f"these values can't leave the script: {error}") from error
