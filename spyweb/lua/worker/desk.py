"""What the daemon's messages mean: here they become VMs, runs, and tasks for whichever thread steps the VM."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Any

from spyweb.lua import wire
from spyweb.lua.wire import Ended, FromWorker, ToWorker
from spyweb.lua.worker import limits
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.link import Outlet
from spyweb.lua.worker.runs import Ledger, Phase, Run, Task, Tenancy
from spyweb.lua.worker.vm import VM, Parts

_LARGEST = 8  # VMs that a PONG names
_SMALLEST = 1 << 20  # bytes; a VM with a lower limit could not even be furnished

_RESUME = int(ToWorker.RESUME)
_LOADED, _END, _PONG = int(FromWorker.LOADED), int(FromWorker.END), int(FromWorker.PONG)


class Desk:
    def __init__(self, ledger: Ledger, outlet: Outlet, console: Console, parts: Parts) -> None:
        self._ledger = ledger
        self._outlet = outlet
        self._console = console
        self._parts = parts
        self._init = b""
        self._meanings: dict[object, Callable[..., Task | None]] = {
            int(ToWorker.INIT): self._start,
            int(ToWorker.LOAD): self._load,
            int(ToWorker.BEGIN): self._begin,
            int(ToWorker.CANCEL): self._cancel,
            int(ToWorker.DROP): self._drop,
            int(ToWorker.PING): self._ping,
            int(ToWorker.CREDIT): self._credit,
        }

    def receive(self, message: list[Any]) -> Task | None:
        """The task that a message asks for, its VM claimed for whoever asked; None when there is nothing left to do."""
        if message[0] == _RESUME:
            return self._resume(message)
        return self._meanings[message[0]](*message[1:])

    def _resume(self, message: list[Any]) -> Task | None:
        ledger = self._ledger
        with ledger.lock:
            run, number = ledger.runs.get(message[1]), message[2]
            if run is None or run.asks != number:
                return None  # it has been told to end since it asked
            run.asks = 0
            return _claim(Task(run.home, run, number, message[3], message[4:]))

    def _begin(self, number: int, vm: int, procedure: str, arguments: bytes, cpu_limit_ms: int) -> Task | None:
        ledger = self._ledger
        with ledger.lock:
            home = ledger.homes.get(vm)
            if home is None:
                self._outlet.post([_END, number, int(Ended.UNBEGUN), b"its VM is gone", b"", 0, None, True])
                return None
            run = Run(
                id=number,
                home=home,
                procedure=procedure,
                arguments=arguments,
                cpu_limit=cpu_limit_ms / 1000,
                why=ledger.take_early(number),
            )
            ledger.runs[number] = run
            home.runs += 1
            return _claim(Task(home=home, run=run))

    def _cancel(self, number: int, why: int) -> Task | None:
        with self._ledger.lock:
            run = self._ledger.runs.get(number)
            if run is None:
                self._ledger.note_early(number, why)
                return None
            task = end(run, why)
            self._ledger.watched[run.id] = run
        self._console.wake()
        return task

    def _load(self, number: int, name: str, source: bytes | str, limit: int) -> None:
        home = Tenancy(number, self._console)
        reason = self._furnish(home, name, source.encode() if isinstance(source, str) else source, limit)
        if reason is None:
            with self._ledger.lock:
                self._ledger.homes[number] = home
        self._outlet.post([_LOADED, number, reason])

    def _furnish(self, home: Tenancy, name: str, source: bytes, limit: int) -> str | None:
        """The reason why there is no VM with this script."""
        too_large = f"{name}: does not fit into its memory limit of {limit} bytes"
        try:
            home.vm = VM(self._parts, self._init, max(limit, _SMALLEST), home, main_count=limits.MAIN_COUNT)
        except MemoryError:
            return too_large
        try:
            message = home.vm.compile(name.encode(), source) if home.vm.has_room(len(source)) else too_large.encode()
        except MemoryError:
            message = too_large.encode()
        if message is None:
            return None
        home.vm.close()
        return message.decode("utf-8", "replace")

    def _drop(self, vm: int) -> Task | None:
        with self._ledger.lock:
            home = self._ledger.homes.get(vm)
            if home is None:
                return None
            self._ledger.retire(home)
            if home.busy or home.runs:
                return None
            home.busy = True
            return Task(home=home)

    def _ping(self, number: int) -> None:
        ledger = self._ledger
        used = [(home.vm.used, home.id) for home in [*list(ledger.homes.values()), *list(ledger.closing)]]
        largest = [[vm, size] for size, vm in heapq.nlargest(_LARGEST, used)]
        self._outlet.post([_PONG, number, sum(size for size, _ in used), largest])

    def _credit(self, lines: int) -> None:
        self._console.give(lines)

    def _start(self, init: dict[str, object]) -> None:
        self._init = wire.pack([init])


def end(run: Run, why: int) -> Task | None:
    """Has a run end, with the ledger's lock held, for the first reason given.  Gives the task that does it."""
    if run.why or run.phase is Phase.ENDED:
        return None
    run.why = why
    run.asks = 0
    run.limit_at = run.limit_at or time.monotonic()
    if run.started:
        limits.arm(run.address)
        return None
    return _claim(Task(home=run.home, run=run))


def _claim(task: Task) -> Task | None:
    """A VM does one thing at a time: what finds it busy waits there."""
    home = task.home
    if home.busy:
        home.pending.append(task)
        return None
    home.busy = True
    return task
