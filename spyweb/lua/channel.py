"""The channel between the daemon and one run: it begins the run, has it end, and answers the ops that the run asks for.

The ops are answered in slots: one for the run's own, and one for each of its branches, which are the functions of a
script that are under way at once.  What a branch has taken in the world (its op, locks, a transaction) ends with it,
before the run goes on.  Answering an op is the hottest path of the daemon.
"""

from __future__ import annotations

import math
from asyncio import CancelledError, Future, TaskGroup
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count
from time import perf_counter
from typing import Any

import msgspec
import structlog

from spyweb import limits
from spyweb.clock import Clock, Handle
from spyweb.errors import OpError
from spyweb.lua import wire
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.hooks import HOOK_OP
from spyweb.lua.session import Lineage, PendingRun, Results, StoreAnswer
from spyweb.lua.wire import BranchBegan, BranchEnded, OpCall, PackedOpCall, ResumeRun, Why

log = structlog.get_logger()

OVERDUE = 3.0  # seconds after a cancel; the worker says that the run is stuck after one: this is for one that can't
# A VM has at most 1,000 in a run; by the other socket, big ops of newer ones may come before the end of older ones.
MOST_BRANCHES = 2_000
PLAIN, PACKED, RAISE, RAISE_PACKED = map(int, wire.Form)
WALKED = 20_000  # values of an answer that are visited one by one: more would hold up the loop
LARGEST_INTEGER = (1 << 63) - 1
_AS_THEY_ARE = frozenset({bytes, bool, float, type(None)})


class OpSlot:
    """A place for one op: a chain of calls, of the run or of one of its branches, has at most one under way."""

    def __init__(
        self, pending: PendingRun, connection: WorkerConnection, tasks: TaskGroup, lineage: Lineage = ()
    ) -> None:
        self.lineage = lineage
        self.timer: Handle | None = None  # of a branch with a timeout
        self.asked_in = 0  # which batch of messages brought its latest op
        self.number = 0  # of its latest op
        self._pending = pending
        self._recording = pending.request.recording
        self._asked = 0.0  # when its latest op came
        self._connection = connection
        self._tasks = tasks
        self._awaited: Future[Any] | None = None  # what the op under way waits for
        self._result: Callable[[], Results | Exception]  # and what then becomes of it
        self._op = ""  # its name
        self._call: OpCall | PackedOpCall | None = None  # itself, until it is answered, where the run is recorded

    @property
    def is_asking(self) -> bool:
        """Say whether an op is under way."""
        return self._awaited is not None

    def ask(self, call: OpCall | PackedOpCall) -> None:
        """Carry out an op and answer it, now or when it is done."""
        if (
            call.number <= self.number
        ):  # a big one, overtaken on the other socket: its run was killed and asked for more
            return
        self.drop_op()
        self.number = call.number
        self._op = call.name
        self._call = call if self._recording else None
        self._asked = perf_counter()
        try:
            values = _unpack(call) if isinstance(call, PackedOpCall) else call.values
            awaitable = self._pending.host.op(call.name, values, self.lineage)
            if isinstance(awaitable, StoreAnswer):
                self._await(awaitable.source, awaitable.result)
            elif isinstance(awaitable, Future):
                self._await(awaitable, awaitable.result)
            else:
                task = self._tasks.create_task(_contained(awaitable))
                self._await(task, task.result)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - one op: the script gets any error
            self._refuse(error)

    def drop_op(self) -> None:
        """Cancel the op under way, if there is one; nobody waits for its answer any more."""
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            self._note(None, 0)
            awaited.cancel()

    def stop(self) -> None:
        """Cancel the op under way, and the timeout."""
        if self.timer is not None:
            self.timer.cancel()
        self.drop_op()

    def _await(self, source: Future[Any], result: Callable[[], Results | Exception]) -> None:
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

    def _give(self, results: Results | Exception) -> None:
        if isinstance(results, Exception):
            raise results
        message, size = resume(self._pending.request.run, self.number, results)
        if size > wire.LARGEST:
            raise OpError(f"{self._op}: {size} bytes can't be handed over at once, {wire.LARGEST} at most")
        self._note(message, size)
        self._connection.send_sized(message, size)
        self._time()

    def _refuse(self, error: BaseException) -> None:
        self._time()
        request, value = self._pending.request, None
        if isinstance(error, OpError):
            text, value = str(error), error.value
        elif isinstance(error, CancelledError):
            text = f"{self._op} was cancelled"
        else:
            log.error("an op failed", op=self._op, run=request.run, job=request.code.job, exc_info=error)
            text = f"internal error in {self._op}"
        form, data = (RAISE, as_bytes(text)) if value is None else (RAISE_PACKED, pack([value]))
        message = ResumeRun(request.run, self.number, form, [data])
        self._note(message, len(data))
        self._connection.send_sized(message, len(data))

    def _note(self, answer: ResumeRun | None, size: int) -> None:
        if self._recording and self._call:
            self._recording.note(self._call, self.lineage, self._asked, answer, size)
            self._call = None

    def _time(self) -> None:
        histogram = self._pending.op_times.get(self._op)  # None: a worker may ask for any name
        if histogram is not None:
            histogram.observe(perf_counter() - self._asked)


async def _contained(awaitable: Awaitable[Results]) -> Results | Exception:
    """Return an op's error, which the script gets: raised in a task group, it would end the daemon."""
    try:
        return await awaitable
    except Exception as error:  # noqa: BLE001 - one op
        return error


def _unpack(call: PackedOpCall) -> list[object]:
    """Unpack the arguments, unless they hold more values than the loop has time for."""
    what, limit = f"{call.name}: what it is given", limits.OP_ELEMENTS
    if call.name == HOOK_OP:
        what, limit = "what it returned", limits.HOOK_ELEMENTS
    if call.elements > limit:
        raise OpError(limits.too_large(what, call.elements, limit, "values"))
    try:
        return wire.unpack_outer(call.packed, call.elements) if call.name == HOOK_OP else wire.unpack(call.packed)
    except (msgspec.DecodeError, RecursionError) as error:
        raise OpError(f"these values can't leave the script: {error}") from error


class RunChannel:
    """One run under way in a worker, with its branches that have asked for an op or have a timeout.

    `overdue` is called when the run was asked to end and did not.  A message against the protocol raises ValueError.
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
        self.why = Why.NOTHING  # why it was asked to end
        self.run = pending.request.run
        self._connection = connection
        self._clock = clock
        self._tasks = tasks
        self._overdue = overdue
        self._timer = clock.call_later(pending.request.timeout_ms / 1000, lambda: self.cancel(Why.TIMEOUT))
        self.own = OpSlot(pending, connection, tasks)  # for the ops of no branch
        self._branches: dict[int, OpSlot] = {}
        self._late: set[int] = set()  # numbers of ops of ended branches that have not come

    def begin(self, template: int = 0) -> None:
        """Tell the worker to begin the run, in a VM that it has or in one that it makes from this template."""
        request = self.pending.request
        arguments = pack(request.arguments)
        message = wire.BeginRun(
            request.run, self.vm, request.procedure, arguments, request.cpu_limit_ms, template, request.reads
        )
        self._connection.send_sized(message, len(arguments))

    def cancel(self, why: Why) -> None:
        """Tell the run to end for this reason.  Only the first reason counts."""
        if self.why is not Why.NOTHING:
            return
        self.why = why
        self._timer.cancel()
        self._timer = self._clock.call_later(OVERDUE, lambda: self._overdue(self))
        for slot in (self.own, *self._branches.values()):
            slot.stop()
        self._connection.send(wire.CancelRun(self.run, int(why)))

    def close(self) -> None:
        """Stop waiting for answers and timers: the run has ended."""
        self._timer.cancel()
        self.own.stop()
        for branch in self._branches.values():
            self._close_branch(branch)
        self._branches.clear()

    def slot_for(self, call: OpCall | PackedOpCall) -> OpSlot | None:
        """Return the slot for an op; None where its branch has ended, and it comes too late."""
        if not call.branch:
            return self.own
        if call.number in self._late:
            self._late.discard(call.number)
            return None
        return self._branch(call.branch)

    def branch_began(self, told: BranchBegan) -> None:
        parent = self._branch(told.parent).lineage if told.parent else ()
        branch = self._branch(told.branch, parent)
        if told.timeout_ms and branch.timer is None:
            end = wire.EndBranch(self.run, told.branch)
            branch.timer = self._clock.call_later(told.timeout_ms / 1000, lambda: self._connection.send(end))

    def branch_ended(self, told: BranchEnded) -> None:
        branch = self._branches.pop(told.branch, None)
        if branch is not None:
            self._close_branch(branch)
        if told.number > (branch.number if branch else 0):
            self._late.add(told.number)
            _check_count(self._late)

    def _branch(self, number: int, parent: Lineage = ()) -> OpSlot:
        branch = self._branches.get(number)
        if branch is None:
            branch = OpSlot(self.pending, self._connection, self._tasks, (number, *parent))
            self._branches[number] = branch
            _check_count(self._branches)
        return branch

    def _close_branch(self, branch: OpSlot) -> None:
        branch.stop()
        self.pending.host.end_branch(branch.lineage)

    def log(self, level: str, text: bytes) -> None:
        try:
            self.pending.host.log(level, text)
        except Exception:  # one op: a bug in it costs a log line, not the worker
            log.exception("a log line was lost", run=self.run, job=self.pending.request.code.job)


def _check_count(known: dict[int, OpSlot] | set[int]) -> None:
    if len(known) > MOST_BRANCHES:
        raise ValueError(f"over {MOST_BRANCHES} branches of one run")


# What is handed to a VM: scalars cross one by one, anything else as one packed list


def resume(run: int, number: int, results: Sequence[object]) -> tuple[ResumeRun, int]:
    """Return the message that answers an op, and about how many bytes it takes."""
    values: list[Any] = []
    size = 0
    for value in results:
        kind = type(value)
        if kind is bytes:
            size += len(value)  # type: ignore[arg-type]
        elif kind is int:
            value = as_lua_integer(value)  # type: ignore[arg-type]
        elif kind is str:
            value = as_bytes(value)  # type: ignore[arg-type]
            size += len(value)
        elif kind not in _AS_THEY_ARE:
            packed = pack(results)
            return ResumeRun(run, number, PACKED, [packed]), len(packed)
        values.append(value)
    return ResumeRun(run, number, PLAIN, values), size


def as_lua_integer(value: int) -> int | float:
    """Return an integer, or a float for one that does not fit into Lua's 64 bits."""
    if -LARGEST_INTEGER - 1 <= value <= LARGEST_INTEGER:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_bytes(text: str) -> bytes:
    """Encode a text as UTF-8; surrogates, which stand for bytes that are not UTF-8, become those bytes again."""
    return text.encode("utf-8", "surrogateescape")


def pack(values: Sequence[object]) -> bytes:
    """Pack a list of values; integers below 2**64 cross as they are: the codec in Lua makes floats of large ones."""
    try:
        return wire.pack(values)
    except (OverflowError, UnicodeEncodeError):
        return wire.pack(_as_packable(values, count(1)))


def _as_packable(value: object, counted: Iterator[int]) -> object:
    if next(counted) > WALKED:
        raise OpError(f"an answer with text that is not UTF-8 has more than {WALKED} values")
    match value:
        case bool():
            return value
        case int():
            return as_lua_integer(value)
        case str():
            return value if value.isascii() else as_bytes(value)
        case Mapping():
            return {_as_packable(key, counted): _as_packable(item, counted) for key, item in value.items()}
        case list() | tuple():
            return [_as_packable(item, counted) for item in value]
        case _:
            return value
