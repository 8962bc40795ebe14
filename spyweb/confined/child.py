"""Start a process of spyweb's own, at the other end of a socket, and end it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import structlog

import spyweb
from spyweb.clock import Clock

log = structlog.get_logger()

INHERITED = ("LD_LIBRARY_PATH", "PYTHONHOME")  # without these this Python may not start at all
WITHOUT_SITE = ("-P", "-S")  # none of these processes needs what the site's start-up files import

LOOK_S = 0.02  # between two checks whether it has ended
EVERY = 0.1  # seconds between two reads of its output at least, so that a traceback is read as a whole
MOST_READ = 65_536  # bytes in one read, which is what a pipe holds
MOST_SHOWN = 4_096  # bytes in one line of the log


def bare_environment(*libraries: str) -> dict[str, str]:
    """Return an environment with only what Python needs to start and to find this spyweb.

    The environment also names these libraries, for a Python that does not look for its site (-S).
    """
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    found = [spyweb.__file__, *(spec.origin for spec in map(find_spec, libraries) if spec and spec.origin)]
    folders = dict.fromkeys(str(Path(file).parents[1]) for file in found)
    return kept | {"PYTHONPATH": os.pathsep.join(folders)}


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"


class ChildOutput:
    """Copies the stdout and stderr of a process, `who`, to the log: now and then, cut, and labelled.

    It writes to a pipe: if it writes more than is read, the pipe is full and its write fails: it never waits.
    """

    def __init__(self, who: str, clock: Clock) -> None:
        """Open the pipe.  Raises OSError."""
        self._who = who
        self._clock = clock
        self._reader, self.writer = os.pipe()  # the writer belongs to the process: `given` closes it here
        os.set_blocking(self._reader, False)
        os.set_blocking(self.writer, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._wait)

    def given(self) -> None:
        """Close the writer here, once the process has it or could not be started."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Log the rest, once the process has ended."""
        self.given()
        if self._reader < 0:
            return
        self._loop.remove_reader(self._reader)
        self._read()
        os.close(self._reader)
        self._reader = -1

    def _wait(self) -> None:
        self._loop.remove_reader(self._reader)
        self._clock.call_later(EVERY, self._go_on)

    def _go_on(self) -> None:
        if self._reader < 0:
            return
        if self._read():
            self._loop.add_reader(self._reader, self._wait)

    def _read(self) -> bool:
        """Log the content of the pipe, and return whether there may be more."""
        with suppress(BlockingIOError):
            data = os.read(self._reader, MOST_READ)
            if not data:
                return False
            text = data[:MOST_SHOWN].decode("utf-8", "replace").strip()
            cut = f" ... ({len(data) - MOST_SHOWN} bytes cut)" if len(data) > MOST_SHOWN else ""
            log.error(f"{self._who} wrote to its error output", text=text + cut)
        return True


class ChildProcess:
    """A process that runs a module; its end of the socket is the first argument of that."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        libraries: Sequence[str],
        variables: Mapping[str, str] | None = None,
        output: ChildOutput | None = None,
    ) -> None:
        """Start it, with its output in the log.  Raises OSError, and then leaves nothing open, nor the output."""
        self._output = output
        writer = None if output is None else output.writer
        with ExitStack() as on_failure:
            if output is not None:
                on_failure.callback(output.close)
            ours, theirs = socket.socketpair()
            on_failure.callback(ours.close)
            with theirs:
                descriptor = theirs.fileno()
                self._process = subprocess.Popen(
                    [sys.executable, *WITHOUT_SITE, "-m", module, str(descriptor), *arguments],
                    pass_fds=[descriptor],
                    env=bare_environment(*libraries) | dict(variables or {}),
                    stdin=subprocess.DEVNULL,
                    stdout=writer,
                    stderr=writer,
                    process_group=0,  # a Ctrl-C in the terminal must reach the daemon alone
                )
            on_failure.pop_all()
        if output is not None:
            output.given()
        ours.setblocking(False)
        self.socket = ours
        self.pid = self._process.pid

    def kill(self) -> None:
        self._process.kill()

    async def wait(self, clock: Clock, limit: float) -> str:
        """Wait until it has ended by itself, or is killed after so many seconds; return how it ended."""
        timer = clock.call_later(limit, self.kill)
        try:
            while (code := self._process.poll()) is None:
                await clock.sleep(LOOK_S)
            return describe_exit(code)
        finally:
            timer.cancel()

    def close(self) -> None:
        """Kill it and close its descriptors; the wait for a process that waits for a disk is off the event loop."""
        self.socket.close()
        self.kill()
        if self._process.poll() is None:
            with suppress(RuntimeError):  # there is no thread to be had: the next process that is started reaps it
                Thread(target=self._process.wait, daemon=True).start()
        if self._output is not None:
            self._output.close()


class ForkServer:
    """A small process that forks another one for each set of descriptors; started when needed, and when it has died."""

    def __init__(self, start: Callable[[], ChildProcess]) -> None:
        self._start = start
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int | None:
        """Return the pid of the process, once there is one."""
        return self._child.pid if self._child else None

    def hand_over(self, descriptors: Sequence[int]) -> None:
        """Have a process forked that gets these descriptors.  Raises OSError."""
        if self._child is not None:
            with suppress(OSError):  # it has died, or does not read any more
                socket.send_fds(self._child.socket, [b"+"], descriptors)
                return
        self.close()
        self._child = self._start()
        socket.send_fds(self._child.socket, [b"+"], descriptors)

    def close(self) -> None:
        """End the process; its forks notice that by themselves, or by their own sockets."""
        if self._child is not None:
            self._child.close()
            self._child = None
