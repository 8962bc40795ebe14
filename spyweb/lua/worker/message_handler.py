"""What the daemon's messages mean: here they become VMs, runs, and tasks for whichever thread steps the VM."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from threading import Condition
from typing import Any

from msgspec import Struct, field

from spyweb.lua import wire
from spyweb.lua.wire import Ended, FromWorker, ToWorker
from spyweb.lua.worker import limits
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.link import Sender
from spyweb.lua.worker.runs import HostedVm, Phase, Registry, Task, WorkerRun
from spyweb.lua.worker.scratch import Scratch
from spyweb.lua.worker.vm import VM, Bytecode, VmInit, compile_to_bytecode, init_of

_SMALLEST = 1 << 20  # bytes; a VM with a lower limit could not even be furnished

_RESUME = int(ToWorker.RESUME)
_LOADED, _END, _PONG = int(FromWorker.LOADED), int(FromWorker.END), int(FromWorker.PONG)


class VmTemplate(Struct, kw_only=True):
    """What VMs for single runs are made of, and those that are made already."""

    files: list[tuple[str, bytes]]
    limit: int  # bytes of each VM
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
        self._templates: dict[int, VmTemplate] = {}
        self._newest = 0  # template that has come; their numbers grow
        self._has_come = Condition()
        self._meanings: dict[object, Callable[..., Task | None]] = {
            int(ToWorker.INIT): self._start,
            int(ToWorker.LOAD): self._load,
            int(ToWorker.CHECK): self._check,
            int(ToWorker.BEGIN): self._begin,
            int(ToWorker.CANCEL): self._cancel,
            int(ToWorker.DROP): self._drop,
            int(ToWorker.PING): self._ping,
            int(ToWorker.CREDIT): self._credit,
            int(ToWorker.TEMPLATE): self._keep,
            int(ToWorker.FRESH): self._begin_fresh,
        }

    def receive(self, message: list[Any]) -> Task | None:
        """The task that a message asks for, its VM claimed for whoever asked; None when there is nothing left to do."""
        if message[0] == _RESUME:
            return self._resume(message)
        return self._meanings[message[0]](*message[1:])

    def _resume(self, message: list[Any]) -> Task | None:
        registry = self._registry
        with registry.lock:
            run, number = registry.runs.get(message[1]), message[2]
            if run is None or run.asks != number:
                return None  # it has been told to end since it asked
            run.asks = 0
            return _claim(Task(run.hosted, run, number, message[3], message[4:]))

    def _begin(self, number: int, vm: int, procedure: str, arguments: bytes, cpu_limit_ms: int) -> Task | None:
        registry = self._registry
        with registry.lock:
            hosted = registry.vms.get(vm)
            if hosted is None:
                self._sender.post([_END, number, int(Ended.UNBEGUN), b"its VM is gone", b"", 0, None, True])
                return None
            return self._enlist(hosted, number, procedure, arguments, cpu_limit_ms)

    def _enlist(
        self, hosted: HostedVm, number: int, procedure: str, arguments: bytes, cpu_limit_ms: int
    ) -> Task | None:
        """A new run, with the registry's lock held."""
        run = WorkerRun(
            id=number,
            hosted=hosted,
            procedure=procedure,
            arguments=arguments,
            cpu_limit=cpu_limit_ms / 1000,
            why=self._registry.take_early(number),
        )
        self._registry.runs[number] = run
        hosted.runs += 1
        return _claim(Task(hosted=hosted, run=run))

    def _cancel(self, number: int, why: int) -> Task | None:
        with self._registry.lock:
            run = self._registry.runs.get(number)
            if run is None:
                self._registry.note_early(number, why)
                return None
            task = end(run, why)
            self._registry.watched[run.id] = run
        self._console.wake()
        return task

    def _load(self, number: int, name: str, source: bytes, limit: int, more: list[tuple[str, bytes]]) -> None:
        hosted = self._registry.settle(number, name, self._console)
        reason = self._furnish(hosted, [(name, source), *more], limit)
        if reason is None:
            with self._registry.lock:
                self._registry.vms[number] = hosted
        self._sender.post([_LOADED, number, _cut(reason)])

    def _check(self, number: int, name: str, source: bytes, limit: int, more: list[tuple[str, bytes]]) -> None:
        scratch = Scratch(self._bytecode, max(limit, _SMALLEST))
        reasons = (_compile(scratch, *file, limit) for file in [(name, source), *more])
        self._sender.post([_LOADED, number, _cut(next((reason for reason in reasons if reason is not None), None))])

    def _keep(
        self, number: int, name: str, source: bytes, limit: int, more: list[tuple[str, bytes]], spares: int
    ) -> None:
        files = [(name, source), *more]
        bytecode = compile_to_bytecode(files)
        self._templates[number] = VmTemplate(files=files, limit=limit, bytecode=bytecode, count=spares)
        with self._has_come:
            self._newest = number
            self._has_come.notify_all()

    def _begin_fresh(
        self, number: int, vm: int, template: int, procedure: str, arguments: bytes, cpu_limit_ms: int
    ) -> Task | None:
        hosted = self._fresh_vm(template)
        if not isinstance(hosted, HostedVm):
            ended, reason = hosted
            self._sender.post([_END, number, int(ended), reason.encode()[: wire.REASON], b"", 0, None, True])
            return None
        hosted.id = vm
        with self._registry.lock:
            self._registry.closing.add(hosted)
            return self._enlist(hosted, number, procedure, arguments, cpu_limit_ms)

    def _fresh_vm(self, number: int) -> HostedVm | tuple[Ended, str]:
        if number > self._newest:  # a big message has overtaken it on the other socket, whose thread waits here
            with self._has_come:
                self._has_come.wait_for(lambda: number <= self._newest)
        template = self._templates.get(number)
        if template is None:
            return Ended.UNBEGUN, "there is nothing to make its VM of"
        try:
            return template.spares.pop()
        except IndexError:
            made = self._make(template)
            return made if isinstance(made, HostedVm) else (Ended.ERROR, made)

    def _make(self, template: VmTemplate) -> HostedVm | str:
        """A VM for a single run, or the reason why there is none."""
        hosted = self._registry.settle(0, template.files[0][0], self._console)
        hosted.fleeting = hosted.closing = True
        return self._furnish(hosted, template.files, template.limit, template.bytecode) or hosted

    def make_spare(self) -> None:
        """One VM for whoever asks next, if one is missing.  To be called when there is nothing else to do."""
        for template in list(self._templates.values()):
            if len(template.spares) < template.count:
                made = self._make(template)
                if isinstance(made, HostedVm):
                    template.spares.append(made)
                else:
                    template.count = 0  # it is told to whoever asks for one
                return

    def _furnish(
        self, hosted: HostedVm, files: list[tuple[str, bytes]], limit: int, bytecode: list[bytes] | None = None
    ) -> str | None:
        """The reason why there is no VM with these files."""
        try:
            hosted.vm = VM(
                self._bytecode,
                self._init,
                max(limit, _SMALLEST),
                hosted,
                main_count=limits.MAIN_COUNT,
                is_fleeting=hosted.fleeting,
            )
        except MemoryError:
            return _too_large(files[0][0], limit)
        if bytecode and _add(hosted.vm, bytecode):
            return None
        for name, source in files:
            message = _compile(hosted.vm, name, source, limit)
            if message is not None:
                hosted.vm.close()
                return message
        return None

    def _drop(self, vm: int) -> Task | None:
        template = self._templates.pop(vm, None)
        if template is not None:
            while template.spares:
                template.spares.pop().vm.close()
            return None
        with self._registry.lock:
            hosted = self._registry.vms.get(vm)
            if hosted is None:
                return None
            self._registry.retire(hosted)
            if hosted.busy or hosted.runs:
                return None
            hosted.busy = True
            return Task(hosted=hosted)

    def _ping(self, number: int) -> None:
        registry = self._registry
        used = [(hosted.vm.used, hosted.id) for hosted in [*list(registry.vms.values()), *list(registry.closing)]]
        largest = [[vm, size] for size, vm in heapq.nlargest(wire.MOST_VMS, used)]
        self._sender.post([_PONG, number, sum(size for size, _ in used), largest])

    def _credit(self, lines: int) -> None:
        self._console.give(lines)

    def _start(self, init: dict[str, object]) -> None:
        self._init = init_of(init)


def _compile(vm: VM | Scratch, name: str, source: bytes, limit: int) -> str | None:
    try:
        if vm.has_room(len(source)):
            message = vm.compile(name.encode(), source)
            return None if message is None else message.decode("utf-8", "replace")
    except MemoryError:
        pass
    return _too_large(name, limit)


def _add(vm: VM, bytecode: list[bytes]) -> bool:
    """Whether there was room for it; where there is none, compiling the text will say so."""
    if not vm.has_room(sum(map(len, bytecode)) * 2):
        return False
    for code in bytecode:
        vm.add(code)
    return True


def _cut(reason: str | None) -> str | None:
    """Lua's complaint holds what it found there, be it a text of megabytes."""
    return None if reason is None else reason[: wire.REASON]


def _too_large(name: str, limit: int) -> str:
    return f"{name}: does not fit into its memory limit of {limit} bytes"


def end(run: WorkerRun, why: int) -> Task | None:
    """Has a run end, with the registry's lock held, for the first reason given.  Gives the task that does it."""
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
    """A VM does one thing at a time: what finds it busy waits there."""
    hosted = task.hosted
    if hosted.busy:
        hosted.pending.append(task)
        return None
    hosted.busy = True
    return task
