"""One worker process as the daemon sees it: its start, its VMs and runs, whether it is alive, and how it died.

It takes VMs and runs from the moment it is made: they reach the process when there is one.  It decides nothing about
jobs; it tells its pool what happens, and of its death once, when nothing more can come from it.
"""

from __future__ import annotations

import socket
from asyncio import CancelledError, Future, TaskGroup, get_running_loop
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, Protocol

import structlog
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.confined.frames import MAX_FRAME
from spyweb.cooperative import set_done, within
from spyweb.errors import PoolError
from spyweb.limits import LOG_BYTES_PER_S
from spyweb.lua import wire
from spyweb.lua.channel import RunChannel
from spyweb.lua.connection import FlushQueue, WorkerConnection
from spyweb.lua.session import Code, EngineInfo, PendingRun, WorkerInfo
from spyweb.lua.spawner import Child, Exit, Slots, Spawner
from spyweb.lua.wire import BranchBegan, BranchEnded, FromWorker, OpCall, PackedOpCall, RunEnd, RunStuck, Why
from spyweb.model import MIB, JobId, RunId

log = structlog.get_logger()

READY_LIMIT = 10.0  # seconds from its fork until it says that it is ready
DEATH_LIMIT = 1.0  # seconds from SIGKILL, or from the end of its sockets, until it counts as dead in any case
MOST_OF_REASON = 200  # characters of what was wrong with a message

# Pings without any message since.  Counted rather than timed, so that a pause of the daemon itself kills no worker.
UNANSWERED_PINGS = 3
UNFINISHED_PINGS = 60  # pings during which one big message may arrive
MOST_STRAYS = 1_000  # messages between two pings that belong to nothing; a sound worker sends a few after a kill
LEAST_BULK = 64 * MIB  # bytes of a big message that any worker may send, and ...
BULK_SHARE = 8  # ... so many times the memory limit of its largest VM: an op may be passed one text several times

REFILL = 100  # log lines granted at once ...
REFILL_EVERY = 0.02  # ... seconds: at this rate one worker's lines leave the loop most of its time
REFILL_BYTES = int(LOG_BYTES_PER_S * REFILL_EVERY)  # what those lines may hold


class Death(Struct, frozen=True, kw_only=True):
    """The death of a worker."""

    reason: str
    blameless: bool  # nothing that ran in it is to blame
    stepped: Mapping[int, int]  # the runs that were being stepped, and the CPU that each had used, in ms
    is_killed: bool = False  # the daemon has killed it


class Vm(Struct, kw_only=True, eq=False):
    """One VM of a worker.  Once it is marked for removal no further run begins in it; its last run closes it."""

    number: int
    code: Code
    worker: WorkerProcess
    waiting: list[PendingRun] = []  # its own (a Struct copies it): until it is loaded
    running: int = 0
    is_loaded: bool = False
    is_marked: bool = False
    template: Template | None = None  # where it is made by the worker for a single run, and gone with it


class Template(Struct, kw_only=True, eq=False):
    """The code of VMs for single runs.  Forgotten, it is dropped after its last run, whose request may be under way."""

    number: int
    code: Code
    spares: int
    running: int = 0
    is_forgotten: bool = False


class WorkerPool(Protocol):
    """The pool as its workers see it: their shared parts, and the calls by which they report."""

    clock: Clock
    spawner: Spawner
    flush_queue: FlushQueue
    init: EngineInfo
    tasks: TaskGroup

    def loaded(self, vm: Vm, reason: str | None) -> None: ...

    def ended(self, vm: Vm, channel: RunChannel, end: RunEnd) -> None: ...

    def stuck(self, worker: WorkerProcess, channel: RunChannel, report: RunStuck | None) -> None: ...

    def closing_for_ever(self, worker: WorkerProcess) -> None: ...

    def measured(self, worker: WorkerProcess, largest: Sequence[tuple[int, int]]) -> None: ...

    def proven(self, worker: WorkerProcess) -> None: ...

    def died(self, worker: WorkerProcess, death: Death) -> None: ...


class LogCredit:
    """Grants a worker new log lines for the lines that it sent, at a rate bounded in lines and in bytes."""

    def __init__(self, clock: Clock, grant: Callable[[int], None]) -> None:
        self._clock = clock
        self._grant = grant
        self._debt: deque[int] = deque()  # bytes of each line that no credit was given back for
        self._ahead = 0  # bytes granted ahead

    @property
    def is_used_up(self) -> bool:
        return len(self._debt) >= wire.LOG_CREDIT

    def spend(self, size: int) -> None:
        self._debt.append(size)
        if len(self._debt) == 1 and not self._ahead:
            self._clock.call_later(REFILL_EVERY, self._refill)

    def _refill(self) -> None:
        lines, size = 0, self._ahead
        while self._debt and lines < REFILL and size < REFILL_BYTES:
            size += self._debt.popleft()
            lines += 1
        self._ahead = max(size - REFILL_BYTES, 0)
        if lines:
            self._grant(lines)
        if self._debt or self._ahead:
            self._clock.call_later(REFILL_EVERY, self._refill)


class WorkerProcess:
    def __init__(self, pool: WorkerPool, job: JobId | None) -> None:
        loop = get_running_loop()
        self.job = job  # the only one it is for
        self.pid = 0
        self.up: Future[bool] = loop.create_future()  # False: it died before it was ready
        self.dead: Future[None] = loop.create_future()
        self.vms: dict[int, Vm] = {}
        self.rights: Sequence[str] = ()
        self.used_bytes = 0
        self.is_proven = False  # it has answered a ping
        self.is_retiring = False
        self.is_stopped = False  # on purpose: its death is not reported
        self._pool = pool
        self._clock = pool.clock
        self._connection = WorkerConnection(self, pool.flush_queue)
        # The process
        self._slots: Slots | None = None  # made at its fork, which may fail: out of descriptors, of memory
        self._child: Child | None = None  # none yet, or never
        self._open_sockets = 0
        self._is_forking = False
        self._kill_reason = ""
        self._is_blameless = False
        self._is_heard = True
        # Its VMs and runs
        self._numbers = count(1)
        self._channels: dict[int, RunChannel] = {}
        self._checks: dict[int, Future[str | None]] = {}
        self._templates: dict[JobId, Template] = {}
        self._largest_limit = 0  # bytes of memory that a VM of it may have had
        self._idle: Future[None] = loop.create_future()
        # Its messages
        self._unanswered_pings = 0
        self._pongs_due = 0
        self._batch = 0  # how many batches of messages have come
        self._strays = 0  # messages that answer to nothing under way, since the last ping
        self._log_credit = LogCredit(pool.clock, lambda lines: self._connection.send(wire.GrantLogCredit(lines)))
        self._handlers: dict[type, Callable[[Any], None]] = {
            OpCall: self._op,
            PackedOpCall: self._op,
            wire.ScriptLog: self._log,
            RunEnd: self._run_end,
            wire.VmLoaded: self._vm_loaded,
            wire.Pong: self._pong,
            RunStuck: self._run_stuck,
            wire.WorkerReady: self._ready,
            BranchBegan: self._branch,
            BranchEnded: self._branch,
        }
        self._connection.send(wire.InitWorker(list(pool.init.ops), dict(pool.init.engine)))

    @property
    def info(self) -> WorkerInfo:
        return WorkerInfo(
            pid=self.pid,
            job=self.job,
            vms=len(self.vms),
            runs=len(self._channels),
            used_bytes=self.used_bytes,
            retiring=self.is_retiring,
        )

    @property
    def is_up(self) -> bool:
        return self.up.done() and self.up.result()

    @property
    def is_answering(self) -> bool:
        """Return whether it has answered a ping, and one of the last few."""
        return self.is_up and self.is_proven and self._unanswered_pings < UNANSWERED_PINGS and not self.dead.done()

    @property
    def load(self) -> tuple[bool, int, int]:
        """Return a key to compare workers by: the smallest has the most room.  VMs count first, since they stay."""
        return not self.is_up, len(self.vms) + len(self._checks), len(self._channels)

    @property
    def is_empty(self) -> bool:
        return not self.vms and not self._has_spares

    @property
    def _has_spares(self) -> bool:
        return any(template.spares for template in self._templates.values())

    @property
    def is_idle(self) -> bool:
        """Return whether nothing runs, waits or is kept ready in it: its end costs no more than its VMs' globals."""
        is_loading = any(vm.waiting or not vm.is_loaded for vm in self.vms.values())
        return self.is_proven and not self._channels and not is_loading and not self._has_spares

    @property
    def channels(self) -> Sequence[RunChannel]:
        return list(self._channels.values())

    @property
    def stepped(self) -> Mapping[int, int]:
        """Return the runs that it is stepping, and the CPU that each of them has used, in ms."""
        return self._slots.stepped() if self._slots and not self.dead.done() else {}

    # Start

    async def start(self, delay: float) -> None:
        """Fork the process after so many seconds, and wait until it is ready."""
        if delay:
            await self._clock.sleep(delay)
        if self.dead.done():
            return
        self._is_forking = True
        try:
            await self._fork()
        except (PoolError, OSError) as error:
            self._kill_reason = self._kill_reason or str(error)
            self._conclude()
            return
        except CancelledError:
            self._conclude()
            raise
        finally:
            self._is_forking = False
        if not await within(self._clock, READY_LIMIT, self.up):
            self.kill(f"it was not ready within {READY_LIMIT:.0f} s")

    async def _fork(self) -> None:
        slots = self._slots = Slots()
        main, their_main = socket.socketpair()
        bulk, their_bulk = socket.socketpair()
        with their_main, their_bulk:
            await self._connection.open(main, bulk)
            self._open_sockets = 2
            child = await self._pool.spawner.fork(their_main, their_bulk, slots.descriptor)
        slots.given()
        self.pid = child.pid
        self._child = child
        child.exited.add_done_callback(self._conclude_if_over)
        if self._kill_reason:  # killed while it was forked
            self._clock.call_later(DEATH_LIMIT, self._conclude)
            self._pool.spawner.kill(child)

    # VMs and runs

    def load_vm(self, code: Code) -> Vm:
        vm = Vm(number=next(self._numbers), code=code, worker=self)
        self.vms[vm.number] = vm
        self._note_limit(code)
        self._connection.send_sized(
            wire.LoadVm(vm.number, code.files, code.memory_limit, self._pool.init.variables_of(code)), code.size
        )
        return vm

    def check(self, code: Code) -> Future[str | None]:
        """Compile the code in a VM that is dropped then; the result is the reason why that fails, if it does.

        A PoolError when the worker dies meanwhile.
        """
        number = next(self._numbers)
        compiled = self._checks[number] = get_running_loop().create_future()
        self._note_limit(code)
        self._connection.send_sized(wire.LoadVm(number, code.files, code.memory_limit), code.size)
        return compiled

    def _note_limit(self, code: Code) -> None:
        self._largest_limit = max(self._largest_limit, code.memory_limit)

    @property
    def most_bulk(self) -> int:
        return min(max(LEAST_BULK, BULK_SHARE * self._largest_limit), MAX_FRAME)

    def begin(self, vm: Vm, pending: PendingRun) -> None:
        vm.running += 1
        self._open_channel(pending, vm.number)

    def begin_fresh(self, pending: PendingRun, spares: int) -> None:
        """Begin the run in a VM that the worker makes for it."""
        template = self.keep_template(pending.request.code, spares)
        number = next(self._numbers)
        self.vms[number] = Vm(
            number=number, code=template.code, worker=self, running=1, is_loaded=True, is_marked=True, template=template
        )
        template.running += 1
        self._open_channel(pending, number, template.number)

    def _open_channel(self, pending: PendingRun, vm: int, template: int = 0) -> None:
        pending.stop_waiting()
        channel = RunChannel(
            pending,
            vm,
            connection=self._connection,
            clock=self._clock,
            tasks=self._pool.tasks,
            overdue=lambda channel: self._pool.stuck(self, channel, None),
        )
        self._channels[channel.run] = channel
        channel.begin(template)

    def keep_template(self, code: Code, spares: int) -> Template:
        """Give the worker this code as its job's template, and have it keep so many VMs of it ready."""
        template = self._templates.get(code.job)
        if template is not None and template.spares == spares and (template.code is code or template.code == code):
            return template
        self.forget_template(code.job)
        template = self._templates[code.job] = Template(number=next(self._numbers), code=code, spares=spares)
        self._note_limit(code)
        self._connection.send(
            wire.KeepTemplate(
                template.number, code.files, code.memory_limit, spares, self._pool.init.variables_of(code)
            )
        )
        return template

    def forget_template(self, job: JobId, older_than: float = inf) -> None:
        template = self._templates.get(job)
        if template is not None and template.code.generation < older_than:
            del self._templates[job]
            template.is_forgotten = True
            self._drop_template_if_over(template)

    def _drop_template_if_over(self, template: Template) -> None:
        if template.is_forgotten and not template.running:
            self._connection.send(wire.DropVm(template.number))

    def cancel(self, run: RunId, why: Why) -> bool:
        """Tell the run to end; return whether it is one of this worker's."""
        channel = self._channels.get(run)
        if channel is not None:
            channel.cancel(why)
        return channel is not None

    def mark_for_removal(self, vm: Vm) -> None:
        """Mark the VM to be dropped after its last run.  Runs that wait for it to be loaded still begin in it."""
        vm.is_marked = True
        self._drop_if_over(vm)

    def _drop_if_over(self, vm: Vm) -> None:
        over = vm.is_marked and vm.is_loaded and not vm.running and not vm.waiting
        if not over or self.vms.pop(vm.number, None) is None:
            return
        if vm.template is None:
            self._connection.send(wire.DropVm(vm.number))
        else:
            vm.template.running -= 1
            self._drop_template_if_over(vm.template)

    def abandon(self, channel: RunChannel) -> None:
        """Ignore this run from now on."""
        if self._channels.pop(channel.run, None) is not None:
            channel.close()
            self._leave(self.vms[channel.vm])

    def _leave(self, vm: Vm) -> None:
        """Note that a run of this VM is over."""
        vm.running -= 1
        self._drop_if_over(vm)
        if self.is_retiring and not self._channels:
            set_done(self._idle)

    def retire(self) -> Future[None]:
        """Give the worker no more work; the future is done when its last run has ended."""
        self.is_retiring = True
        if not self._channels:
            set_done(self._idle)
        return self._idle

    def ping(self) -> None:
        """Ping the worker; called every half second, it kills a worker that is silent for too long."""
        if not self.is_up:
            return
        if self._unanswered_pings >= UNANSWERED_PINGS:
            self.kill("it answered no ping for 1.5 s")
            return
        if self._connection.look() > UNFINISHED_PINGS:
            self.kill("it sent a message that was not complete within 30 s")
            return
        self._unanswered_pings += 1
        self._pongs_due += 1
        self._strays = 0
        self._connection.send(wire.PingWorker(self._unanswered_pings))

    # Messages from the worker

    def received(self, messages: Sequence[FromWorker]) -> None:
        """Handle decoded messages.  Raises ValueError for what no sound worker sends: it is killed."""
        if not self._is_heard:
            return
        self._batch += 1
        for message in messages:
            # Any message shows that it lives: a Pong waits behind the VMs that are made first.  Half a frame does not.
            self._unanswered_pings = 0
            self._handlers[type(message)](message)

    def _stray(self) -> None:
        """Count a message that belongs to nothing: to a run given up a moment ago, or it is made up."""
        self._strays += 1
        if self._strays > MOST_STRAYS:
            raise ValueError(f"over {MOST_STRAYS} messages that belong to no run, VM or ping")

    def _op(self, call: OpCall | PackedOpCall) -> None:
        channel = self._channels.get(call.run)
        slot = None if channel is None else channel.slot_for(call)
        if slot is None:
            self._stray()
            return
        # The op before it has not even been answered.
        if slot.asked_in == self._batch or slot.is_asking:
            self._stray()
        slot.asked_in = self._batch
        slot.ask(call)

    def _branch(self, told: BranchBegan | BranchEnded) -> None:
        channel = self._channels.get(told.run)
        if channel is None:
            self._stray()
        elif isinstance(told, BranchBegan):
            channel.branch_began(told)
        else:
            channel.branch_ended(told)

    def _log(self, line: wire.ScriptLog) -> None:
        if self._log_credit.is_used_up:
            raise ValueError("log lines beyond its credit")
        channel = self._channels.get(line.run)
        if channel is not None:
            channel.log(line.level, line.text)
        self._log_credit.spend(len(line.text))

    def _ready(self, ready: wire.WorkerReady) -> None:
        if self.up.done():
            raise ValueError("ready for a second time")
        self.rights = ready.rights
        self.up.set_result(True)
        self.ping()

    def _vm_loaded(self, loaded: wire.VmLoaded) -> None:
        compiled = self._checks.pop(loaded.vm, None)
        if compiled is not None:
            if loaded.reason is None:
                self._connection.send(wire.DropVm(loaded.vm))
            if not compiled.done():
                compiled.set_result(loaded.reason)
            return
        vm = self.vms.get(loaded.vm)
        if vm is None or vm.is_loaded:
            self._stray()
            return
        vm.is_loaded = loaded.reason is None
        if loaded.reason is not None:
            del self.vms[loaded.vm]
        self._pool.loaded(vm, loaded.reason)
        self._drop_if_over(vm)

    def _run_end(self, end: RunEnd) -> None:
        channel = self._channels.pop(end.run, None)
        if channel is None:
            self._stray()
            return
        channel.close()
        vm = self.vms[channel.vm]
        vm.is_marked = vm.is_marked or end.discarded or end.ended is wire.Ended.UNBEGUN
        self._leave(vm)
        self._pool.ended(vm, channel, end)

    def _pong(self, pong: wire.Pong) -> None:
        if not self._pongs_due:
            self._stray()
            return
        self._pongs_due -= 1
        self.used_bytes = pong.used
        if not self.is_proven:
            self.is_proven = True
            self._pool.proven(self)
        self._pool.measured(self, pong.largest)

    def _run_stuck(self, stuck: RunStuck) -> None:
        channel = self._channels.get(stuck.run)
        if channel is not None:
            self._pool.stuck(self, channel, stuck)
        elif stuck.run == wire.NO_RUN:
            self._pool.closing_for_ever(self)
        else:
            self._stray()

    def broke_protocol(self, error: Exception) -> None:
        if self._is_heard:
            log.error("a worker is killed: it broke the protocol", pid=self.pid, exc_info=error)
        self._is_heard = False
        self.kill(f"it broke the protocol ({str(error)[:MOST_OF_REASON]})")

    # Death

    def stop(self) -> None:
        """Kill it because it is not needed any more."""
        self.is_stopped = True
        self.kill("it is not needed any more", blameless=True)

    def kill(self, reason: str, *, blameless: bool = False) -> None:
        """Send SIGKILL.  Its death reports the first given reason."""
        if self._kill_reason or self.dead.done():
            return
        self._kill_reason, self._is_blameless = reason, blameless
        if self._child is not None:
            self._clock.call_later(DEATH_LIMIT, self._conclude)
            self._pool.spawner.kill(self._child)
        elif not self._is_forking:
            self._conclude()

    def lost(self) -> None:
        """Handle the end of a socket, after all that came over it: the process is dead or dying."""
        self._open_sockets -= 1
        if self._child is not None:
            self._pool.spawner.kill(self._child)
            self._conclude_if_over()

    def _conclude_if_over(self, _exit: Future[Exit] | None = None) -> None:
        signs = (self._open_sockets == 0, self._child is not None and self._child.exited.done())
        if all(signs):
            self._conclude()
        elif any(signs):
            self._clock.call_later(DEATH_LIMIT, self._conclude)

    def _conclude(self) -> None:
        """Note that the process is dead and sends nothing more, and end all that waits for it."""
        if self.dead.done():
            return
        self.dead.set_result(None)
        self._connection.close()
        if not self.up.done():
            self.up.set_result(False)
        exited = self._child and self._child.exited
        exit_ = exited.result() if exited and exited.done() else Exit(how="it has ended")
        death = Death(
            reason=self._kill_reason or exit_.how,
            blameless=self._is_blameless or exit_.with_zygote,
            stepped=self._slots.stepped() if self._slots else {},
            is_killed=bool(self._kill_reason),
        )
        if self._slots:
            self._slots.close()
        set_done(self._idle)
        for compiled in self._checks.values():
            if not compiled.done():
                compiled.set_exception(PoolError(f"a worker died: {death.reason}"))
        self._pool.died(self, death)
