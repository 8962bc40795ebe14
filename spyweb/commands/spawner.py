"""Start the process that forks a nanny for each command, and hand commands to it.

It is started with the first command, and again when it has died.  The other side is process.py.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress

import structlog

from spyweb.clock import Clock
from spyweb.commands.sweep import children_of, is_stopped
from spyweb.confined.child import bare_environment, end
from spyweb.errors import CommandError
from spyweb.logs.child import ChildOutput

log = structlog.get_logger()

WITHOUT_SITE = ("-P", "-S")  # it does not need what the site's start-up files import


class CommandSpawner:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output: ChildOutput | None = None

    @property
    def pid(self) -> int | None:
        """Return the pid of the process, once there is one."""
        return self._process.pid if self._process else None

    def hand_over(self, descriptors: Sequence[int]) -> None:
        """Have a nanny forked for the command with this leash and these streams.  Raises CommandError."""
        try:
            if self._control is not None:
                with suppress(OSError):  # it has died since
                    socket.send_fds(self._control, [b"+"], descriptors)
                    return
            self.close()
            socket.send_fds(self._start(), [b"+"], descriptors)
        except OSError as error:
            raise CommandError(f"the process that starts commands can't be started: {error.strerror}") from error

    def kill_if_stopped(self, busy: Collection[int]) -> None:
        """Kill the process with all nannies if it was stopped, or a nanny that has not taken its command.

        `busy` are the nannies that have theirs.
        """
        process = self._process
        if process and any(map(is_stopped, {process.pid, *children_of(process.pid)}.difference(busy))):
            log.warning("the process that starts commands was stopped: another one is started", pid=process.pid)
            os.killpg(process.pid, signal.SIGKILL)
            self.close()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._control = ours  # `close` takes all that there is, also of a start that failed
            ours.setblocking(False)  # a process that does not read any more counts as dead
            output = self._output = ChildOutput("the process that starts commands", self._clock)
            descriptor, temporary = theirs.fileno(), tempfile.gettempdir()
            self._process = subprocess.Popen(
                [sys.executable, *WITHOUT_SITE, "-m", "spyweb.commands.process", str(descriptor), temporary],
                pass_fds=[descriptor],
                env=bare_environment("msgspec"),
                stdin=subprocess.DEVNULL,
                stdout=output.writer,
                stderr=output.writer,
                process_group=0,  # a Ctrl-C in the terminal must reach the daemon alone
            )
            output.given()
        return ours

    def close(self) -> None:
        """End the process; its nannies end their commands at once."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            end(self._process)
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None
