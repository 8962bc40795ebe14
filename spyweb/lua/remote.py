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
from typing import Protocol, cast

from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import PoolError
from spyweb.limits import LOG_BYTES_PER_S
from spyweb.lua import wire
from spyweb.lua.deadlines import Deadlines
from spyweb.lua.dialogue import Dialogue, Terms
from spyweb.lua.link import Departures, Link
from spyweb.lua.nursery import Births
from spyweb.lua.patience import settle
from spyweb.lua.process import Death, Process
from spyweb.lua.session import Code, InitFacts, Order, WorkerInfo
from spyweb.lua.wire import FromWorker, ToWorker, Why
from spyweb.model import JobId, RunId

# At 0.5 s: 1.5 s without a word.  Counted rather than timed, so that a pause of the daemon itself kills nobody.
UNANSWERED_PINGS = 3
REFILL = 100  # log lines granted at once ...
REFILL_EVERY = 0.02  # ... seconds: 5,000 lines/s from one worker leave the loop five sixths of its time
REFILL_BYTES = int(LOG_BYTES_PER_S * REFILL_EVERY)  # what those lines may hold

_OP = int(FromWorker.OP)
_LOG = int(FromWorker.LOG)


class Vm(Struct, kw_only=True, eq=False):
    """One VM of a worker.  It is doomed when no further run may begin in it: it goes with its last run."""

    number: int
    code: Code
    worker: RemoteWorker
    waiting: list[Order] = []  # its own (a Struct copies it): until it is loaded
    running: int = 0
    is_loaded: bool = False
    is_doomed: bool = False
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

    def ended(self, vm: Vm, dialogue: Dialogue, message: Sequence[object]) -> None: ...

    def stuck(self, worker: RemoteWorker, dialogue: Dialogue) -> None:
        """This run was told to end, or went over a limit, and does not end."""

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
    departures: Departures
    init: InitFacts
    tasks: TaskGroup
    overseer: Overseer

    def terms(self, link: Link, overdue: Callable[[Dialogue], None]) -> Terms:
        """Those of one worker's dialogues."""
        timeouts = Deadlines(self.clock)
        return Terms(link=link, clock=self.clock, timeouts=timeouts, spawn=self.tasks.create_task, overdue=overdue)


class RemoteWorker:
    def __init__(self, around: Around, job: JobId | None) -> None:
        self.job = job  # the only one it is for
        self.vms: dict[int, Vm] = {}
        self.rights: Sequence[str] = ()
        self.used_bytes = 0
        self.is_proven = False  # it has answered a ping
        self.is_retiring = False
        self.is_dismissed = False
        self.process = Process(around.clock, around.births, around.departures, self)
        self._link = self.process.link
        self._clock = around.clock
        self._terms = around.terms(self._link, self._overdue)
        self._overseer = around.overseer
        self._dialogues: dict[int, Dialogue] = {}
        self._checks: dict[int, Future[str | None]] = {}
        self._templates: dict[JobId, Template] = {}
        self._idle: Future[None] = get_running_loop().create_future()
        self._numbers = count(1)
        self._unanswered = 0
        self._log_debt: deque[int] = deque()  # bytes of each line that no credit was given back for
        self._log_over = 0  # bytes granted ahead
        self._hear = {
            int(FromWorker.READY): self._ready,
            int(FromWorker.LOADED): self._loaded,
            int(FromWorker.END): self._end,
            int(FromWorker.PONG): self._pong,
            int(FromWorker.STUCK): self._stuck,
        }
        self._link.send([int(ToWorker.INIT), init_message(around.init)])

    @property
    def info(self) -> WorkerInfo:
        return WorkerInfo(
            pid=self.process.pid,
            job=self.job,
            vms=len(self.vms),
            runs=len(self._dialogues),
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
        return not self.is_up, len(self.vms) + len(self._checks), len(self._dialogues)

    @property
    def is_empty(self) -> bool:
        return not self.vms and not any(template.spares for template in self._templates.values())

    @property
    def dialogues(self) -> Sequence[Dialogue]:
        return list(self._dialogues.values())

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

    def _send_code(self, kind: ToWorker, number: int, code: Code) -> None:
        message = [int(kind), number, code.chunk, code.source, code.memory_limit, code.more]
        self._link.send_sized(message, len(code.source) + sum(len(source) for _, source in code.more))

    def begin(self, vm: Vm, order: Order) -> None:
        dialogue = Dialogue(order, vm.number, self._terms)
        vm.running += 1
        self._dialogues[order.request.run] = dialogue
        dialogue.begin()

    def begin_fresh(self, order: Order, spares: int) -> None:
        template = self.keep_template(order.request.code, spares)
        number = next(self._numbers)
        self.vms[number] = Vm(
            number=number,
            code=template.code,
            worker=self,
            running=1,
            is_loaded=True,
            is_doomed=True,
            template=template,
        )
        template.running += 1
        dialogue = self._dialogues[order.request.run] = Dialogue(order, number, self._terms)
        dialogue.begin_fresh(template.number)

    def keep_template(self, code: Code, spares: int) -> Template:
        """Have the worker know this code, and no other of its job, and keep so many VMs of it ready."""
        template = self._templates.get(code.job)
        if template is not None and template.spares == spares and (template.code is code or template.code == code):
            return template
        self.forget_template(code.job)
        template = self._templates[code.job] = Template(number=next(self._numbers), code=code, spares=spares)
        facts = [code.chunk, code.source, code.memory_limit, code.more, spares]
        self._link.send([int(ToWorker.TEMPLATE), template.number, *facts])
        return template

    def forget_template(self, job: JobId, older_than: float = inf) -> None:
        template = self._templates.get(job)
        if template is not None and template.code.generation < older_than:
            del self._templates[job]
            template.is_forgotten = True
            self._drop_template_if_over(template)

    def _drop_template_if_over(self, template: Template) -> None:
        if template.is_forgotten and not template.running:
            self._link.send([int(ToWorker.DROP), template.number])

    def cancel(self, run: RunId, why: Why) -> bool:
        """Whether it is one of its runs."""
        dialogue = self._dialogues.get(run)
        if dialogue is not None:
            dialogue.cancel(why)
        return dialogue is not None

    def _overdue(self, dialogue: Dialogue) -> None:
        self._overseer.stuck(self, dialogue)

    def doom(self, vm: Vm) -> None:
        """Let it go with its last run.  What waits for it to be loaded still begins in it."""
        vm.is_doomed = True
        self._drop_if_over(vm)

    def _drop_if_over(self, vm: Vm) -> None:
        over = vm.is_doomed and vm.is_loaded and not vm.running and not vm.waiting
        if not over or self.vms.pop(vm.number, None) is None:
            return
        if vm.template is None:
            self._link.send([int(ToWorker.DROP), vm.number])
        else:
            vm.template.running -= 1
            self._drop_template_if_over(vm.template)

    def dismiss(self) -> None:
        """It is not needed any more."""
        self.is_dismissed = True
        self.process.kill("it is not needed any more", blameless=True)

    def abandon(self, dialogue: Dialogue) -> None:
        """Whatever it does from now on, nobody listens."""
        if self._dialogues.pop(dialogue.run, None) is not None:
            dialogue.close()
            self._leave(self.vms[dialogue.vm])

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
        self._unanswered += 1
        self._link.tidy()
        self._link.send([int(ToWorker.PING), self._unanswered])

    # What it says

    def received(self, messages: Iterable[list[object]]) -> None:
        self._unanswered = 0  # whatever it says, it lives; a PONG waits behind the VMs that are made before it
        dialogues = self._dialogues
        for message in messages:
            kind = message[0]
            if kind == _OP:
                dialogue = dialogues.get(message[1])  # type: ignore[call-overload]
                if dialogue is not None:
                    dialogue.ask(message)
            elif kind == _LOG:
                self._log(message)
            else:
                self._hear[kind](message)  # type: ignore[index]

    def _ready(self, message: list[object]) -> None:
        facts = cast("dict[str, list[str]]", message[1])
        self.rights = [str(right) for right in facts["rights"]]
        self.process.up.set_result(True)
        self.ping()

    def _loaded(self, message: list[object]) -> None:
        number, reason = cast("tuple[int, str | None]", message[1:3])
        verdict = self._checks.pop(number, None)
        if verdict is not None:
            if not verdict.done():
                verdict.set_result(reason)
            return
        vm = self.vms.get(number)
        if vm is None or vm.is_loaded:
            return
        vm.is_loaded = reason is None
        if reason is not None:
            del self.vms[number]
        self._overseer.loaded(vm, reason)
        self._drop_if_over(vm)

    def _end(self, message: list[object]) -> None:
        dialogue = self._dialogues.pop(cast(int, message[1]), None)
        if dialogue is None:
            return
        dialogue.close()
        vm = self.vms[dialogue.vm]
        vm.is_doomed = vm.is_doomed or bool(message[7]) or message[2] == wire.Ended.UNBEGUN
        self._leave(vm)
        self._overseer.ended(vm, dialogue, message)

    def _leave(self, vm: Vm) -> None:
        vm.running -= 1
        self._drop_if_over(vm)
        self._settle_if_idle()

    def _settle_if_idle(self) -> None:
        if self.is_retiring and not self._dialogues:
            settle(self._idle)

    def _pong(self, message: list[object]) -> None:
        _, _, used, largest = message
        self.used_bytes = cast(int, used)
        if not self.is_proven:
            self.is_proven = True
            self._overseer.proven(self)
        self._overseer.measured(self, cast("list[tuple[int, int]]", largest))

    def _stuck(self, message: list[object]) -> None:
        dialogue = self._dialogues.get(cast(int, message[1]))
        if dialogue is not None:
            self._overseer.stuck(self, dialogue)

    def _log(self, message: list[object]) -> None:
        _, run, level, text = cast("tuple[int, int, str, bytes]", message)
        dialogue = self._dialogues.get(run)
        if dialogue is not None:
            dialogue.log(level, text)
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
            self._link.send([int(ToWorker.CREDIT), credit])
        if self._log_debt or self._log_over:
            self._clock.call_later(REFILL_EVERY, self._refill)

    def died(self, death: Death) -> None:
        settle(self._idle)
        for verdict in self._checks.values():
            if not verdict.done():
                verdict.set_exception(PoolError(f"a worker died: {death.reason}"))
        self._overseer.died(self, death)


def init_message(init: InitFacts) -> dict[str, object]:
    return {"ops": list(init.ops), "engine": dict(init.engine), "env": dict(init.env)}
