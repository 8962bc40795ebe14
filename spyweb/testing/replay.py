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
from spyweb.model import Failure, Outcome, Run
from spyweb.ops.world import JobLog
from spyweb.runs.recordings import Hiding, is_of_secret
from spyweb.views.ops import call_text
from spyweb.words import counted

# Why a run that failed was ended while it waited; one without a failure was lost, or stopped with its daemon.
STOPPED_BY = {Failure.TIMEOUT: Why.TIMEOUT, Failure.CANCELLED: Why.CANCELLED, None: Why.STOPPED}

SETTLING_S = 0.2  # in which a script does what follows its last answer


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
        self._no_room = f"the record ends: {counted(record.left_out, 'later op')} had no room in it"
        self._due: dict[Lineage, deque[RecordedOp]] = {}  # what is still to be asked for, by branch
        for op in sorted(record.ops, key=lambda op: op.number):
            self._due.setdefault(op.lineage, deque()).append(op)
        answered = [op.number for op in record.ops if op.is_answered]
        self._turns = {number: turn for turn, number in enumerate(answered)}
        self._waiting: dict[int, Future[None]] = {}  # by turn
        self._is_waiting = False  # for an op that was not answered
        is_well = run.outcome in (Outcome.SUCCESS, Outcome.SKIPPED)
        self._stopped_by = None if is_well else STOPPED_BY.get(run.failure)
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
            return self._end(self._no_room)
        expected, given = due.popleft() if due else None, self._as_recorded(name, arguments)
        is_same = expected is not None and expected.name == name  # and arguments that were too large may be any
        if not expected or not is_same or (expected.given is not None and wire.unpack(expected.given) != given):
            return self._differ(expected, call_text(name, pack(given)))
        if expected.is_answered:
            return Unstarted(partial(self._answer, expected))
        self._is_waiting = True
        self._stop_as_recorded()
        return get_running_loop().create_future()

    def conclude(self) -> None:
        """Note, once the script has ended, that the recorded run went on."""
        left = [ops[0] for ops in self._due.values() if ops]
        if left and not self.is_over:
            self._differ(min(left, key=lambda op: op.number), "")
        elif self._left_out and not self.is_over:
            self._end(self._no_room)

    def _stop_as_recorded(self) -> None:
        """Stop the run, as the recorded one was, once it waits for no other ops than that one did."""
        is_all = self._is_waiting and self.answered == len(self._turns) and not any(self._due.values())
        if is_all and self._stopped_by:
            get_running_loop().call_later(SETTLING_S, self._stop, self._stopped_by)

    def _as_recorded(self, name: str, arguments: Sequence[object]) -> list[object]:
        values = wire.unpack(pack(arguments))
        self.hiding.learn(values)
        return list(self.hiding.hide(values, is_of_secret(name, values)))

    async def _answer(self, op: RecordedOp) -> Results:
        turn = self._turns[op.number]
        if turn != self.answered:
            await self._waiting.setdefault(turn, get_running_loop().create_future())
        await self._watch(op)
        if op.answer is None:
            return await self._end(f"the answer of op {op.number}, {op.name}, was too large to be recorded")
        self.answered += 1
        if following := self._waiting.pop(self.answered, None):
            set_done(following)
        self._stop_as_recorded()
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
