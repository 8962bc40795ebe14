"""Start the process that forks a nanny for each command, and hand commands to it.

It is started with the first command, and again when it has died.  The other side is process.py.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress

import structlog

from spyweb.clock import Clock
from spyweb.commands.sweep import children_of, is_stopped
from spyweb.confined.child import ChildOutput, ChildProcess
from spyweb.errors import CommandError

log = structlog.get_logger()


class CommandSpawner:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int | None:
        """Return the pid of the process, once there is one."""
        return self._child.pid if self._child else None

    def hand_over(self, descriptors: Sequence[int]) -> None:
        """Have a nanny forked for the command with this leash and these streams.  Raises CommandError."""
        if self._child is not None:
            with suppress(OSError):  # it has died, or does not read any more
                socket.send_fds(self._child.socket, [b"+"], descriptors)
                return
        self.close()
        try:
            self._child = ChildProcess(
                "spyweb.commands.process",
                tempfile.gettempdir(),
                libraries=("msgspec",),
                output=ChildOutput("the process that starts commands", self._clock),
            )
            socket.send_fds(self._child.socket, [b"+"], descriptors)
        except OSError as error:
            raise CommandError(f"the process that starts commands can't be started: {error.strerror}") from error

    def kill_if_stopped(self, busy: Collection[int]) -> None:
        """Kill the process with all nannies if it was stopped, or a nanny that has not taken its command.

        `busy` are the nannies that have theirs.
        """
        pid = self.pid
        if pid and any(map(is_stopped, {pid, *children_of(pid)}.difference(busy))):
            log.warning("the process that starts commands was stopped: another one is started", pid=pid)
            os.killpg(pid, signal.SIGKILL)
            self.close()

    def close(self) -> None:
        """End the process; its nannies end their commands at once."""
        if self._child is not None:
            self._child.close()
            self._child = None
