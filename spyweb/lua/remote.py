"""One worker as the daemon sees it: its VMs, its runs, whether it is alive, and what it was doing when it died.

It takes VMs and runs from the moment it is made: they reach the process when there is one.  It decides nothing about
jobs; whatever happens is told to its Overseer, the pool.
"""

from __future__ import annotations

from asyncio import Future, TaskGroup, get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, Protocol, cast

from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import PoolError
from spyweb.limits import LOG_BYTES_PER_S
from spyweb.lua import wire
from spyweb.lua.channel import RunChannel, Terms
from spyweb.lua.connection import FlushQueue, WorkerConnection
from spyweb.lua.deadlines import Deadlines
from spyweb.lua.process import Death, Process
from spyweb.lua.session import Code, EngineInfo, PendingRun, WorkerInfo
from spyweb.lua.spawner import Births
from spyweb.lua.timeouts import settle
from spyweb.lua.wire import End, Form, FromWorker, Loaded, Pong, Ready, Stuck, ToWorker, Why
from spyweb.model import MIB, JobId, RunId

# At 0.5 s: 1.5 s without a word.  Counted rather than timed, so that a pause of the daemon itself kills nobody.
UNANSWERED_PINGS = 3
REFILL = 100  # log lines granted at once ...
REFILL_EVERY = 0.02  # ... seconds: 5,000 lines/s from one worker leave the loop five sixths of its time
REFILL_BYTES = int(LOG_BYTES_PER_S * REFILL_EVERY)  # what those lines may hold

UNFINISHED_PINGS = 60  # at 0.5 s: 30 s for one big message to arrive, 1 GB at most
MOST_STRAYS = 1_000  # messages between two pings that answer to nothing; an honest worker has a few after a kill
LEAST_BULK = 64 * MIB  # bytes of a big message that any worker may send, and ...
BULK_SHARE = 8  # ... so many times the memory limit of its largest VM: an op may be passed one text several times

_OP = int(FromWorker.OP)
_LOG = int(FromWorker.LOG)
_PLAIN, _PACKED = int(Form.PLAIN), int(Form.PACKED)
_LEVELS = frozenset({"debug", "info", "warn", "error", "print"})
_LONGEST_LINE = wire.LOG_LINE + wire.LOG_MARK
_OP_FIELDS = 5  # before its values
_LOG_FIELDS = 4


class Vm(Struct, kw_only=True, eq=False):
    """One VM of a worker.  It is doomed when no further run may begin in it: it goes with its last run."""

    number: int
    code: Code
    worker: RemoteWorker
    waiting: list[PendingRun] = []  # its own (a Struct copies it): until it is loaded
    running: int = 0
    is_loaded: bool = False
    is_marked: bool = False
    template: Template | None = None  # where it is made by the worker for a single run, and gone with it


class Template(Struct, kw_only=True, eq=False):
    """What a worker makes fleeting VMs of.  One that is forgotten goes with its last run: a big request may still be on
    its way to the worker, on the other socket."""

    number: int
    code: Code
    spares: int
    running: int = 0
    is_forgotten: bool = False


class Overseer(Protocol):
    """Who hears what becomes of a worker and of what it was given."""

    def loaded(self, vm: Vm, reason: str | None) -> None:
        """It has compiled, or there is a reason why not and the VM is gone."""

    def ended(self, vm: Vm, channel: RunChannel, end: End) -> None: ...

    def stuck(self, worker: RemoteWorker, channel: RunChannel, report: Stuck | None) -> None:
        """This run was told to end, or went over a limit, and does not end; what the worker says of it, if it does."""

    def closing_for_ever(self, worker: RemoteWorker) -> None:
        """It does not come to an end of closing a VM."""

    def measured(self, worker: RemoteWorker, largest: Sequence[tuple[int, int]]) -> None:
        """`used_bytes` is new; [vm, bytes] of the largest VMs."""

    def proven(self, worker: RemoteWorker) -> None:
        """It answers."""

    def died(self, worker: RemoteWorker, death: Death) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What every worker leans on."""

    clock: Clock
    births: Births
    flush_queue: FlushQueue
    init: EngineInfo
    tasks: TaskGroup
    overseer: Overseer

    def terms(self, connection: WorkerConnection, overdue: Callable[[RunChannel], None]) -> Terms:
        """Those of one worker's channels."""
        timeouts = Deadlines(self.clock)
        spawn = self.tasks.create_task
        return Terms(connection=connection, clock=self.clock, timeouts=timeouts, spawn=spawn, overdue=overdue)


class RemoteWorker:
    def __init__(self, around: Around, job: JobId | None) -> None:
        self.job = job  # the only one it is for
        self.vms: dict[int, Vm] = {}
        self.rights: Sequence[str] = ()
        self.used_bytes = 0
        self.is_proven = False  # it has answered a ping
        self.is_retiring = False
        self.is_dismissed = False
        self.process = Process(around.clock, around.births, around.flush_queue, self)
        self._connection = self.process.connection
        self._clock = around.clock
        self._terms = around.terms(self._connection, self._overdue)
        self._overseer = around.overseer
        self._channels: dict[int, RunChannel] = {}
        self._checks: dict[int, Future[str | None]] = {}
        self._templates: dict[JobId, Template] = {}
        self._idle: Future[None] = get_running_loop().create_future()
        self._numbers = count(1)
        self._unanswered = 0
        self._pongs_due = 0
        self._batch = 0  # how many batches of messages have come
        self._strays = 0  # messages that answer to nothing under way, since the last ping
        self._log_debt: deque[int] = deque()  # bytes of each line that no credit was given back for
        self._log_over = 0  # bytes granted ahead
        self._largest_limit = 0  # bytes of memory that a VM of it may have had
        self._hear: dict[type, Callable[[Any], None]] = {
            Ready: self._ready,
            Loaded: self._loaded,
            End: self._end,
            Pong: self._pong,
            Stuck: self._stuck,
        }
        self._connection.send([int(ToWorker.INIT), init_message(around.init)])

    @property
    def info(self) -> WorkerInfo:
        return WorkerInfo(
            pid=self.process.pid,
            job=self.job,
            vms=len(self.vms),
            runs=len(self._channels),
            used_bytes=self.used_bytes,
            retiring=self.is_retiring,
        )

    @property
    def is_up(self) -> bool:
        up = self.process.up
        return up.done() and up.result()

    @property
    def load(self) -> tuple[bool, int, int]:
        """The less the better a place for another VM.  VMs count before runs: they stay."""
        return not self.is_up, len(self.vms) + len(self._checks), len(self._channels)

    @property
    def is_empty(self) -> bool:
        return not self.vms and not any(template.spares for template in self._templates.values())

    @property
    def channels(self) -> Sequence[RunChannel]:
        return list(self._channels.values())

    # What it is given

    def load_vm(self, code: Code) -> Vm:
        vm = Vm(number=next(self._numbers), code=code, worker=self)
        self.vms[vm.number] = vm
        self._send_code(ToWorker.LOAD, vm.number, code)
        return vm

    def check(self, code: Code) -> Future[str | None]:
        """The reason why it does not compile; a PoolError when this worker dies of it, or meanwhile."""
        number = next(self._numbers)
        verdict = self._checks[number] = get_running_loop().create_future()
        self._send_code(ToWorker.CHECK, number, code)
        return verdict

    @property
    def most_bulk(self) -> int:
        return min(max(LEAST_BULK, BULK_SHARE * self._largest_limit), wire.MAX_FRAME)

    def _send_code(self, kind: ToWorker, number: int, code: Code) -> None:
        self._largest_limit = max(self._largest_limit, code.memory_limit)
        message = [int(kind), number, code.chunk, code.source, code.memory_limit, code.more]
        self._connection.send_sized(message, len(code.source) + sum(len(source) for _, source in code.more))

    def begin(self, vm: Vm, pending: PendingRun) -> None:
        channel = RunChannel(pending, vm.number, self._terms)
        vm.running += 1
        self._channels[pending.request.run] = channel
        channel.begin()

    def begin_fresh(self, pending: PendingRun, spares: int) -> None:
        template = self.keep_template(pending.request.code, spares)
        number = next(self._numbers)
        self.vms[number] = Vm(
            number=number,
            code=template.code,
            worker=self,
            running=1,
            is_loaded=True,
            is_marked=True,
            template=template,
        )
        template.running += 1
        channel = self._channels[pending.request.run] = RunChannel(pending, number, self._terms)
        channel.begin_fresh(template.number)

    def keep_template(self, code: Code, spares: int) -> Template:
        """Have the worker know this code, and no other of its job, and keep so many VMs of it ready."""
        template = self._templates.get(code.job)
        if template is not None and template.spares == spares and (template.code is code or template.code == code):
            return template
        self.forget_template(code.job)
        template = self._templates[code.job] = Template(number=next(self._numbers), code=code, spares=spares)
        self._largest_limit = max(self._largest_limit, code.memory_limit)
        facts = [code.chunk, code.source, code.memory_limit, code.more, spares]
        self._connection.send([int(ToWorker.TEMPLATE), template.number, *facts])
        return template

    def forget_template(self, job: JobId, older_than: float = inf) -> None:
        template = self._templates.get(job)
        if template is not None and template.code.generation < older_than:
            del self._templates[job]
            template.is_forgotten = True
            self._drop_template_if_over(template)

    def _drop_template_if_over(self, template: Template) -> None:
        if template.is_forgotten and not template.running:
            self._connection.send([int(ToWorker.DROP), template.number])

    def cancel(self, run: RunId, why: Why) -> bool:
        """Whether it is one of its runs."""
        channel = self._channels.get(run)
        if channel is not None:
            channel.cancel(why)
        return channel is not None

    def _overdue(self, channel: RunChannel) -> None:
        self._overseer.stuck(self, channel, None)

    def mark_for_removal(self, vm: Vm) -> None:
        """Let it go with its last run.  What waits for it to be loaded still begins in it."""
        vm.is_marked = True
        self._drop_if_over(vm)

    def _drop_if_over(self, vm: Vm) -> None:
        over = vm.is_marked and vm.is_loaded and not vm.running and not vm.waiting
        if not over or self.vms.pop(vm.number, None) is None:
            return
        if vm.template is None:
            self._connection.send([int(ToWorker.DROP), vm.number])
        else:
            vm.template.running -= 1
            self._drop_template_if_over(vm.template)

    def dismiss(self) -> None:
        """It is not needed any more."""
        self.is_dismissed = True
        self.process.kill("it is not needed any more", blameless=True)

    def abandon(self, channel: RunChannel) -> None:
        """Whatever it does from now on, nobody listens."""
        if self._channels.pop(channel.run, None) is not None:
            channel.close()
            self._leave(self.vms[channel.vm])

    def retire(self) -> Future[None]:
        """It is given nothing more; done when its last run has ended."""
        self.is_retiring = True
        self._settle_if_idle()
        return self._idle

    def ping(self) -> None:
        """To be called every half second."""
        if not self.is_up:
            return
        if self._unanswered >= UNANSWERED_PINGS:
            self.process.kill("it answered no ping for 1.5 s")
            return
        if self._connection.look() > UNFINISHED_PINGS:
            self.process.kill("a message of it did not arrive whole within 30 s")
            return
        self._unanswered += 1
        self._pongs_due += 1
        self._strays = 0
        self._connection.send([int(ToWorker.PING), self._unanswered])

    # What it says

    def received(self, messages: Iterable[list[object]]) -> None:
        """Carry out what it says.  Each message is checked before anything is taken out because of it.

        Raises ValueError for what no worker of ours says: then it is killed, and its runs are lost.
        """
        self._batch += 1
        channels = self._channels
        for message in messages:
            # Whatever it says, it lives: a PONG waits behind the VMs that are made before it.  Half a frame is no word.
            self._unanswered = 0
            kind = message[0] if type(message) is list and message else None
            if kind == _OP:
                _check_op(message)
                channel = channels.get(message[1])  # type: ignore[call-overload]
                if channel is None:
                    self._stray()
                    continue
                # The answer to the one before has not even left.
                if channel.asked_in == self._batch or channel.is_asking:
                    self._stray()
                channel.asked_in = self._batch
                channel.ask(message)
            elif kind == _LOG:
                self._log(message)
            else:
                report = wire.report_of(message)
                self._hear[type(report)](report)

    def _stray(self) -> None:
        """A message answers to nothing: of a run that was given up a moment ago, or it is made up."""
        self._strays += 1
        if self._strays > MOST_STRAYS:
            raise ValueError(f"over {MOST_STRAYS} messages that answer to nothing")

    def _ready(self, ready: Ready) -> None:
        if self.process.up.done():
            raise ValueError("ready for a second time")
        self.rights = ready.facts.get("rights", [])
        self.process.up.set_result(True)
        self.ping()

    def _loaded(self, loaded: Loaded) -> None:
        verdict = self._checks.pop(loaded.vm, None)
        if verdict is not None:
            if not verdict.done():
                verdict.set_result(loaded.reason)
            return
        vm = self.vms.get(loaded.vm)
        if vm is None or vm.is_loaded:
            self._stray()
            return
        vm.is_loaded = loaded.reason is None
        if loaded.reason is not None:
            del self.vms[loaded.vm]
        self._overseer.loaded(vm, loaded.reason)
        self._drop_if_over(vm)

    def _end(self, end: End) -> None:
        channel = self._channels.pop(end.run, None)
        if channel is None:
            self._stray()
            return
        channel.close()
        vm = self.vms[channel.vm]
        vm.is_marked = vm.is_marked or end.discarded or end.ended is wire.Ended.UNBEGUN
        self._leave(vm)
        self._overseer.ended(vm, channel, end)

    def _leave(self, vm: Vm) -> None:
        vm.running -= 1
        self._drop_if_over(vm)
        self._settle_if_idle()

    def _settle_if_idle(self) -> None:
        if self.is_retiring and not self._channels:
            settle(self._idle)

    def _pong(self, pong: Pong) -> None:
        if not self._pongs_due:
            self._stray()
            return
        self._pongs_due -= 1
        self.used_bytes = pong.used
        if not self.is_proven:
            self.is_proven = True
            self._overseer.proven(self)
        self._overseer.measured(self, pong.largest)

    def _stuck(self, stuck: Stuck) -> None:
        channel = self._channels.get(stuck.run)
        if channel is not None:
            self._overseer.stuck(self, channel, stuck)
        elif stuck.run == wire.NO_RUN:
            self._overseer.closing_for_ever(self)
        else:
            self._stray()

    def _log(self, message: list[object]) -> None:
        _check_log(message)
        _, run, level, text = cast("tuple[int, int, str, bytes]", message)
        if len(self._log_debt) >= wire.LOG_CREDIT:
            raise ValueError("log lines beyond its credit")
        channel = self._channels.get(run)
        if channel is not None:
            channel.log(level, text)
        self._log_debt.append(len(text))
        if len(self._log_debt) == 1 and not self._log_over:
            self._clock.call_later(REFILL_EVERY, self._refill)

    def _refill(self) -> None:
        """Grant as many lines as were sent, at a rate that is bounded in lines and in bytes."""
        credit, size = 0, self._log_over
        while self._log_debt and credit < REFILL and size < REFILL_BYTES:
            size += self._log_debt.popleft()
            credit += 1
        self._log_over = max(size - REFILL_BYTES, 0)
        if credit:
            self._connection.send([int(ToWorker.CREDIT), credit])
        if self._log_debt or self._log_over:
            self._clock.call_later(REFILL_EVERY, self._refill)

    def died(self, death: Death) -> None:
        settle(self._idle)
        for verdict in self._checks.values():
            if not verdict.done():
                verdict.set_exception(PoolError(f"a worker died: {death.reason}"))
        self._overseer.died(self, death)


def _check_op(message: list[object]) -> None:
    if len(message) < _OP_FIELDS:
        raise ValueError("an op of too few parts")
    if type(message[1]) is not int or type(message[2]) is not int or type(message[3]) is not str:
        raise ValueError("an op without a run, a number and a name")
    form = message[4]
    if form != _PLAIN and (form != _PACKED or [type(value) for value in message[_OP_FIELDS:]] != [bytes, int]):
        raise ValueError("an op whose values are neither plain nor packed")


def _check_log(message: list[object]) -> None:
    if len(message) != _LOG_FIELDS:
        raise ValueError("a log line of too many or too few parts")
    _, run, level, text = message
    if type(run) is not int or level not in _LEVELS or type(text) is not bytes or len(text) > _LONGEST_LINE:
        raise ValueError("a log line that is none")


def init_message(init: EngineInfo) -> dict[str, object]:
    return {"ops": list(init.ops), "engine": dict(init.engine), "env": dict(init.env)}
