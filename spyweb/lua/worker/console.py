"""Sends the log lines of scripts to the daemon: each costs one credit, and a script without credit waits.

A kill ends the wait.  The last lines of credit are kept for VMs that are not heavy, so that a flood does not hold up
the others.
"""

from __future__ import annotations

import threading
import time

from spyweb.lua import wire
from spyweb.lua.worker import limits
from spyweb.lua.worker.link import Sender
from spyweb.lua.worker.priority import die
from spyweb.lua.worker.runs import HostedVm, WorkerRun

_RESERVE = wire.LOG_CREDIT // 4


class Console:
    """Counts the credit of all VMs of this worker."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._credit = wire.LOG_CREDIT
        self._changed = threading.Condition()

    def give(self, lines: int) -> None:
        with self._changed:
            self._credit += lines
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake the waiting threads, so that each checks whether its run must end."""
        with self._changed:
            self._changed.notify_all()

    def emit(self, hosted: HostedVm, level: bytes, text: bytes) -> int:
        """Send a line.  Lua calls this, so it must never raise."""
        try:
            run = hosted.stepped
            if run is None:
                return 0
            if self._take(run, _RESERVE if hosted.heavy else 0):
                line = text[: wire.LOG_LINE + wire.LOG_MARK]
                self._sender.post(wire.ScriptLog(run.id, level.decode(), line))  # type: ignore[arg-type]
                if time.monotonic() - self._sender.flushed > limits.LATEST:
                    self._sender.flush()
            return run.why
        except BaseException:  # noqa: BLE001 - nothing may be raised into Lua
            die()

    def _take(self, run: WorkerRun, reserve: int) -> bool:
        if self._credit <= reserve:
            self._sender.flush()  # credit comes only for lines that the daemon has received
        with self._changed:
            if self._credit <= reserve:
                began = time.monotonic()
                self._changed.wait_for(lambda: self._credit > reserve or run.why)
                run.waited += time.monotonic() - began
            if self._credit <= 0:
                return False
            self._credit -= 1
            return True
