"""Answer the ops of a replayed run from the record of the run: nothing that the script asks for reaches the world.

They are answered as they were, in the same order, as long as the script asks for the same ones.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct

from spyweb.cooperative import set_done
from spyweb.errors import OpError
from spyweb.logs.secrets import Secrets
from spyweb.lua import wire
from spyweb.lua.channel import pack
from spyweb.lua.recording import RecordedOp, RunRecord
from spyweb.lua.session import Lineage, Results, Unstarted
from spyweb.lua.wire import Why
from spyweb.model import Failure, Run
from spyweb.ops.world import JobLog
from spyweb.runs.recordings import Hiding
from spyweb.views.ops import call_text

STOPPED_BY = {Failure.TIMEOUT: Why.TIMEOUT, Failure.CANCELLED: Why.CANCELLED}


class Difference(Struct, frozen=True, kw_only=True):
    """Where a script goes another way than in the recorded run."""

    op: int
    recorded: str  # the call; empty: there was none
    now: str  # the same


class ReplayHost:
    def __init__(
        self,
        run: Run,
        record: RunRecord,
        *,
        secrets: Secrets,
        log: JobLog,
        watch: Callable[[RecordedOp], Awaitable[None]],  # called before each answer
        stop: Callable[[Why], None],
    ) -> None:
        self.difference: Difference | None = None
        self.obstacle = ""  # why the record does not lead further
        self.answered = 0
        self.hiding = Hiding(secrets)
        self._left_out = record.left_out
        self._due: dict[Lineage, deque[RecordedOp]] = {}  # what is still to be asked for, by branch
        for op in sorted(record.ops, key=lambda op: op.number):
            self._due.setdefault(op.lineage, deque()).append(op)
        answered = [op.number for op in record.ops if op.is_answered]
        self._turns = {number: turn for turn, number in enumerate(answered)}
        self._waiting: dict[int, Future[None]] = {}  # by turn
        self._stopped_by = STOPPED_BY.get(run.failure or Failure.ERROR)
        self._log, self._watch, self._stop = log, watch, stop

    @property
    def is_over(self) -> bool:
        return bool(self.difference or self.obstacle)

    def log(self, level: str, text: bytes) -> None:
        if level not in ("task", "env") and not self.is_over:
            self._log(level, text)

    def end_branch(self, lineage: Lineage) -> None:
        pass

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Results]:
        if self.is_over:
            raise OpError("the replay is over")
        due = self._due.get(lineage)
        if not due and self._left_out:
            return self._end(obstacle=f"the record ends: {self._left_out:,} later ops had no room in it")
        expected, given = due.popleft() if due else None, self._as_recorded(arguments)
        if expected is None or expected.name != name or not is_same(expected.given, given):
            return self._differ(expected, call_text(name, pack(given)))
        if expected.is_answered:
            return Unstarted(partial(self._answer, expected))
        if self._stopped_by and not any(self._due.values()) and self.answered == len(self._turns):
            self._stop(self._stopped_by)  # as the recorded run was, while it waited for this
        return get_running_loop().create_future()

    def conclude(self) -> None:
        """Note, once the script has ended, that the recorded run went on."""
        left = [ops[0] for ops in self._due.values() if ops]
        if left and not self.is_over:
            self._differ(min(left, key=lambda op: op.number), "")

    def _as_recorded(self, arguments: Sequence[object]) -> list[object]:
        values = wire.unpack(pack(arguments))
        self.hiding.learn(values)
        return list(self.hiding.hide(values))

    async def _answer(self, op: RecordedOp) -> Results:
        turn = self._turns[op.number]
        if turn != self.answered:
            await self._waiting.setdefault(turn, get_running_loop().create_future())
        await self._watch(op)
        if op.answer is None:
            return await self._end(obstacle=f"the answer of op {op.number}, {op.name}, was too large to be recorded")
        self.answered += 1
        if following := self._waiting.pop(self.answered, None):
            set_done(following)
        values = wire.unpack(op.answer)
        if op.is_error:
            text = values[0].decode("utf-8", "surrogateescape") if isinstance(values[0], bytes) else None
            raise OpError(text, value=values[0] if text is None else None)
        return values

    def _differ(self, expected: RecordedOp | None, now: str) -> Future[Results]:
        recorded = call_text(expected.name, expected.given) if expected else ""
        number = expected.number if expected else self.answered + 1
        self.difference = Difference(op=number, recorded=recorded, now=now)
        return self._end()

    def _end(self, obstacle: str = "") -> Future[Results]:
        self.obstacle = obstacle
        self._stop(Why.CANCELLED)
        return get_running_loop().create_future()


def is_same(recorded: bytes | None, given: list[object]) -> bool:
    """Return whether arguments are as recorded; those that were too large there may be any."""
    return recorded is None or wire.unpack(recorded) == given
