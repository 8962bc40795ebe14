"""Turns the daemon's messages into VMs, runs, and tasks for the thread that steps the VM."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from threading import Condition, Event
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from spyweb.lua import wire
from spyweb.lua.wire import BeginRun, Ended, KeepTemplate, ResumeRun, ToWorker
from spyweb.lua.worker import limits
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.link import Sender
from spyweb.lua.worker.runs import HostedVm, Phase, Registry, Task, WorkerRun
from spyweb.lua.worker.vm import VM, Bytecode, VmInit, compile_to_bytecode, init_of

_SMALLEST = 1 << 20  # bytes; a VM with a lower limit could not even hold the prelude


class VmTemplate(Struct, kw_only=True):
    """The files of VMs for single runs, and the spare VMs made of them."""

    code: KeepTemplate
    bytecode: list[bytes] | None
    count: int  # of spares that there should be
    spares: list[HostedVm] = field(default_factory=list)


class MessageHandler:
    def __init__(self, registry: Registry, sender: Sender, console: Console, bytecode: Bytecode) -> None:
        self._registry = registry
        self._sender = sender
        self._console = console
        self._bytecode = bytecode
        self._init = VmInit(b"", b"")
        self.initialized = Event()  # before that no VM can be made
        self._templates: dict[int, VmTemplate] = {}
        self._newest = 0  # template that has come; their numbers grow
        self._template_added = Condition()
        self._handlers: dict[type, Callable[[Any], Task | None]] = {
            ResumeRun: self._resume,
            wire.InitWorker: self._start,
            wire.LoadVm: self._load,
            BeginRun: self._begin,
            wire.CancelRun: self._cancel,
            wire.DropVm: self._drop,
            wire.PingWorker: self._ping,
            wire.GrantLogCredit: lambda granted: console.give(granted.lines),
            KeepTemplate: self._keep,
            wire.EndBranch: self._end_branch,
        }

    def receive(self, message: ToWorker) -> Task | None:
        """Handle a message; return the task that is left to do, with its VM claimed, or None."""
        return self._handlers[type(message)](message)

    def _resume(self, answer: ResumeRun) -> Task | None:
        registry = self._registry
        with registry.lock:
            run, number = registry.runs.get(answer.run), answer.number
            if run is None or (run.asks != number and run.branch is None):
                return None  # it has been asked to end since
            run.asks = 0
            return _claim(Task(run.hosted, run, number, answer.form, answer.values))

    def _begin(self, asked: BeginRun) -> Task | None:
        if asked.template:
            return self._begin_fresh(asked)
        registry = self._registry
        with registry.lock:
            hosted = registry.vms.get(asked.vm)
            if hosted is None:
                self._sender.post(_unbegun(asked.run, Ended.UNBEGUN, "its VM has ended"))
                return None
            return self._add_run(hosted, asked)

    def _add_run(self, hosted: HostedVm, asked: BeginRun) -> Task | None:
        """Add a run, with the registry's lock held; return the task that begins it."""
        run = WorkerRun(
            id=asked.run,
            hosted=hosted,
            procedure=asked.procedure,
            arguments=asked.arguments,
            cpu_limit=asked.cpu_limit_ms / 1000,
            why=self._registry.take_early(asked.run),
            replayed=asked.reads,
        )
        self._registry.runs[asked.run] = run
        hosted.runs += 1
        return _claim(Task(hosted=hosted, run=run))

    def _cancel(self, asked: wire.CancelRun) -> Task | None:
        with self._registry.lock:
            run = self._registry.runs.get(asked.run)
            if run is None:
                self._registry.note_early(asked.run, asked.why)
                return None
            task = end(run, asked.why)
            self._registry.watched[run.id] = run
        self._console.wake()
        return task

    def _end_branch(self, asked: wire.EndBranch) -> Task | None:
        with self._registry.lock:
            run = self._registry.runs.get(asked.run)
            if run is None or run.why or (run.branch is None and not run.started):
                return None
            run.overdue.append(asked.branch)
            if run.started:  # perhaps in the step that launches its first branch
                limits.arm(run.address)
                return None
            return _claim(Task(run.hosted, run))

    def _load(self, asked: wire.LoadVm) -> None:
        """Load a VM and say how it went; Lua's reason quotes the source, which may be very long."""
        hosted = self._registry.new_vm(asked.vm, asked.files[0][0], self._console.emit, self._sender.post)
        reason = self._create_vm(hosted, asked)
        if reason is None:
            with self._registry.lock:
                self._registry.vms[asked.vm] = hosted
        self._sender.post(wire.VmLoaded(asked.vm, None if reason is None else reason[: wire.REASON]))

    def _keep(self, asked: KeepTemplate) -> None:
        bytecode = compile_to_bytecode(asked.files)
        self._templates[asked.number] = VmTemplate(code=asked, bytecode=bytecode, count=asked.spares)
        with self._template_added:
            self._newest = asked.number
            self._template_added.notify_all()

    def _begin_fresh(self, asked: BeginRun) -> Task | None:
        if asked.template > self._newest:  # overtaken by this message on the bulk socket, whose thread waits here
            with self._template_added:
                self._template_added.wait_for(lambda: asked.template <= self._newest)
        template = self._templates.get(asked.template)
        if template is None:
            self._sender.post(_unbegun(asked.run, Ended.UNBEGUN, "the code of its VM was removed"))
            return None
        try:
            hosted: HostedVm | str = template.spares.pop()
        except IndexError:
            hosted = self._make(template)
        if isinstance(hosted, str):
            self._sender.post(_unbegun(asked.run, Ended.ERROR, hosted))
            return None
        hosted.id = asked.vm
        with self._registry.lock:
            self._registry.closing.add(hosted)
            return self._add_run(hosted, asked)

    def _make(self, template: VmTemplate) -> HostedVm | str:
        """Return a new VM for a single run, or the reason why there is none."""
        code = template.code
        hosted = self._registry.new_vm(0, code.files[0][0], self._console.emit, self._sender.post)
        hosted.fleeting = hosted.closing = True
        return self._create_vm(hosted, code, template.bytecode) or hosted

    def make_spare(self) -> None:
        """Make one spare VM, if one is missing.  Called when there is nothing else to do."""
        for template in list(self._templates.values()):
            if len(template.spares) < template.count:
                made = self._make(template)
                if isinstance(made, HostedVm):
                    template.spares.append(made)
                else:
                    template.count = 0  # the next request makes its own VM, and gets the reason
                return

    def _create_vm(
        self, hosted: HostedVm, code: wire.LoadVm | KeepTemplate, bytecode: list[bytes] | None = None
    ) -> str | None:
        """Create the VM and load its files; return the reason if that fails."""
        try:
            hosted.vm = VM(
                self._bytecode,
                self._init._replace(variables=code.variables),
                max(code.memory_limit, _SMALLEST),
                hosted,
                main_count=limits.MAIN_COUNT,
                is_fleeting=hosted.fleeting,
            )
        except MemoryError:
            return _too_large(code.files[0][0], code.memory_limit)
        if bytecode and hosted.vm.has_room(sum(map(len, bytecode)) * 2):
            for piece in bytecode:
                hosted.vm.add(piece)
            return None
        for name, source in code.files:
            message = _compile(hosted.vm, name, source, code.memory_limit)
            if message is not None:
                hosted.vm.close()
                return message
        return None

    def _drop(self, asked: wire.DropVm) -> Task | None:
        template = self._templates.pop(asked.vm, None)
        if template is not None:
            while template.spares:
                template.spares.pop().vm.close()
            return None
        with self._registry.lock:
            hosted = self._registry.vms.get(asked.vm)
            if hosted is None:
                return None
            self._registry.retire(hosted)
            if hosted.busy or hosted.runs:
                return None
            hosted.busy = True
            return Task(hosted=hosted)

    def _ping(self, ping: wire.PingWorker) -> None:
        registry = self._registry
        used = [(hosted.vm.used, hosted.id) for hosted in [*list(registry.vms.values()), *list(registry.closing)]]
        largest = [(vm, size) for size, vm in heapq.nlargest(wire.MOST_VMS, used)]
        self._sender.post(wire.Pong(ping.number, sum(size for size, _ in used), largest))

    def _start(self, init: wire.InitWorker) -> None:
        self._init = init_of(asdict(init))
        self.initialized.set()


def _unbegun(run: int, ended: Ended, reason: str) -> wire.RunEnd:
    return wire.RunEnd(run, ended, reason.encode()[: wire.REASON], b"", 0, None, True)


def _compile(vm: VM, name: str, source: bytes, limit: int) -> str | None:
    try:
        if vm.has_room(len(source)):
            message = vm.compile(name.encode(), source)
            return None if message is None else message.decode("utf-8", "replace")
    except MemoryError:
        pass
    return _too_large(name, limit)


def _too_large(name: str, limit: int) -> str:
    return f"{name}: does not fit into its memory limit of {limit} bytes"


def end(run: WorkerRun, why: int) -> Task | None:
    """Tell a run to end, with the registry's lock held; the first reason counts.  Return the task that ends it."""
    if run.why or run.phase is Phase.ENDED:
        return None
    run.why, run.first_why = why, run.first_why or why
    run.asks = 0
    run.limit_at = run.limit_at or time.monotonic()
    if run.started:
        limits.arm(run.address)
        return None
    return _claim(Task(hosted=run.hosted, run=run))


def _claim(task: Task) -> Task | None:
    """Claim the VM of a task and return the task; where the VM is busy, leave the task there to wait."""
    hosted = task.hosted
    if hosted.busy:
        hosted.pending.append(task)
        return None
    hosted.busy = True
    return task
