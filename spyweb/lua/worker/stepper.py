"""Carries out one task in a VM: pushes what it brings, steps the run, and says what came of it.

Whatever goes wrong in here is one run's affair: it ends, and its VM with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Why
from spyweb.lua.worker import limits, values
from spyweb.lua.worker.link import Outlet
from spyweb.lua.worker.runs import Ledger, Phase, Run, Task, Tenancy
from spyweb.lua.worker.vm import VM, LuaError
from spyweb.lua.worker.values import Told

P = ParamSpec("P")
Result = tuple[object, ...]

_OP = int(Told.OP)
_AFTERMATH = int(Told.AFTERMATH)
_MEMORY = int(Why.MEMORY)
_NO_MEMORY = b"not enough memory"
_ENDED = {
    Why.CPU: Ended.CPU,
    Why.TIMEOUT: Ended.TIMEOUT,
    Why.CANCELLED: Ended.CANCELLED,
    Why.STOPPED: Ended.STOPPED,
    Why.MEMORY: Ended.MEMORY,
}
_SHORT = 0.0005  # seconds; for a shorter step the CPU clock (0.6 µs) is not asked: it used what it took


@dataclass(slots=True, kw_only=True)
class Seat:
    """A thread that steps VMs."""

    thread: int
    slot: int
    cpu: float  # its CPU clock, when last asked


class Stepper:
    def __init__(self, ledger: Ledger, outlet: Outlet, slots: memoryview, wake: Callable[[], None]) -> None:
        self._ledger = ledger
        self._outlet = outlet
        self._slots = slots
        self._wake = wake  # somebody has to watch a run
        self.leading: Run | None = None  # the run that the leader is stepping

    def perform(self, task: Task, seat: Seat, *, leading: bool = False) -> tuple[bool, Task | None]:
        """Gives whether the caller still leads, and the task that waits for the same VM."""
        home, run = task.home, task.run
        if run is None:
            self._close(home)
            return leading, None
        started = self._enter(home, run, seat, leading=leading)
        told = self._attempt(run, self._open(home, run, task))
        while told is not None:
            told = self._settle(home, run, told, seat, started)
            ...
