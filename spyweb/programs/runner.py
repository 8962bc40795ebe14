"""Find the program of a command, and run commands: some at once, the others in line, each within its time.

Nothing of them is left behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import tempfile
from asyncio import CancelledError, Semaphore
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb import descriptors
from spyweb.clock import Clock
from spyweb.confined.child import ChildOutput, ChildProcess, ForkServer
from spyweb.cooperative import within
from spyweb.errors import CommandError
from spyweb.limits import too_large
from spyweb.programs import wire
from spyweb.programs.running import Command, LineCredit, RunningCommand
from spyweb.programs.sweep import children_of, is_stopped, kill_left
from spyweb.programs.wire import CommandRefused, FileVersion, shown, version_of

log = structlog.get_logger()

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL = b"/bin/sh"
SHELL_SIGNAL = 128  # the exit code of a command that a signal has ended, as shells count it: 128 and the signal
SHARE = 8  # the part of all descriptors that commands may have: one of so many ...
DESCRIPTORS_EACH = 5  # ... of each its leash, twice while it is set up, and its three streams
OVER_TIMEOUT = "over its timeout"
TAKEN_S = 2.0  # for a nanny to take a command; then it is looked whether one was stopped
TRIES = 3
END_LIMIT_S = 8.0  # for all commands to end when the daemon does


class CommandLimits(Struct, frozen=True, kw_only=True):
    """The most that commands may use; 0: no limit."""

    at_once: int = 16
    memory: int = 0  # bytes
    cpu_s: int = 0
    processes: int = 0  # in a control group only


class CommandResult(Struct, frozen=True, kw_only=True):
    """How a command ended by itself."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    stdout_dropped: int  # bytes that were not kept
    stderr_dropped: int
    lines_untold: int
    took_ms: int


def start_forking(clock: Clock) -> ChildProcess:
    """Start the process that forks nannies (nanny.py).  Raises OSError."""
    folder = tempfile.gettempdir()
    output = ChildOutput("the process that starts commands", clock)
    return ChildProcess("spyweb.programs.nanny", folder, libraries=("msgspec",), output=output)


class CommandRunner:
    """Runs the commands of all jobs.  `before_first` is called before there is any."""

    def __init__(
        self,
        clock: Clock,
        limits: CommandLimits,
        groups: Path | None = None,
        before_first: Callable[[], object] = lambda: None,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._groups = groups
        self._before_first = before_first
        self.spawner = ForkServer(partial(start_forking, clock))
        self._slots = Semaphore(min(limits.at_once, descriptors.share(SHARE, DESCRIPTORS_EACH)))
        self._credit = LineCredit(clock)
        self._running: set[RunningCommand] = set()
        self._numbers = count(1)
        self._is_closed = False

    async def run(self, command: Command) -> CommandResult:
        """Run a command to its end, with everything that it has started.

        Its timeout counts from here, also while others are before it.  If this is cancelled, the command is asked
        to end, and has ended some seconds later.  Raises CommandError.
        """
        deadline = self._clock.monotonic() + command.timeout_s
        running = await self._begin(command, deadline)
        began = self._clock.monotonic()
        timer = self._clock.call_later(max(deadline - began, 0), running.time_out)
        try:
            outcome = await asyncio.shield(running.gone)
        except CancelledError:
            running.stop()
            raise
        finally:
            timer.cancel()
        if isinstance(outcome, CommandRefused):
            raise CommandError(outcome.reason)
        if outcome is None or outcome.was_stopped:
            reason = "ended with the daemon" if self._is_closed else "ended: the process that starts commands died"
            raise CommandError(OVER_TIMEOUT if running.is_over_timeout else reason)
        return CommandResult(
            exit_code=outcome.exit_code if outcome.exit_code >= 0 else SHELL_SIGNAL - outcome.exit_code,
            stdout=running.stdout.kept,
            stderr=running.stderr.kept,
            stdout_dropped=running.stdout.dropped,
            stderr_dropped=running.stderr.dropped,
            lines_untold=running.stdout.untold + running.stderr.untold,
            took_ms=round((self._clock.monotonic() - began) * 1000),
        )

    async def _begin(self, command: Command, deadline: float) -> RunningCommand:
        """Wait for its turn, and hand the command over until a nanny has it, or it is over its timeout."""
        for _ in range(TRIES):
            try:
                async with asyncio.timeout(deadline - self._clock.monotonic()):
                    await self._slots.acquire()
            except TimeoutError:
                raise CommandError(OVER_TIMEOUT) from None
            try:
                running = self._start(command)
            except BaseException:
                self._slots.release()
                raise
            if await self._is_taken(running, deadline) or running.is_over_timeout:
                break
        return running

    async def _is_taken(self, running: RunningCommand, deadline: float) -> bool:
        """Wait until a nanny has the command; meanwhile a stopped nanny is replaced."""
        now = self._clock.monotonic
        try:
            while not await within(self._clock, max(min(deadline - now(), TAKEN_S), 0), running.taken):
                if now() >= deadline:
                    running.is_over_timeout = True
                    running.abandon()
                else:
                    self._kill_if_stopped()
            return running.taken.result()
        except CancelledError:
            running.kill() if running.holder else running.abandon()  # then no nanny starts it
            raise

    def _kill_if_stopped(self) -> None:
        """Kill what forks nannies, with all of them, if it was stopped, or a nanny that has not taken its command."""
        pid, busy = self.spawner.pid, {each.holder.nanny for each in self._running if each.holder}
        if pid and any(map(is_stopped, {pid, *children_of(pid)}.difference(busy))):
            log.warning("the process that starts commands was stopped: another one is started", pid=pid)
            os.killpg(pid, signal.SIGKILL)
            self.spawner.close()

    def _start(self, command: Command) -> RunningCommand:
        if self._is_closed:
            raise CommandError("the daemon is stopping")
        if self.spawner.pid is None:
            self._before_first()
        start = self._frame(command)
        try:
            running = RunningCommand(command, start, self._clock, self._credit)
        except OSError as error:
            raise CommandError(f"it can't be started: {error.strerror}") from error
        try:
            self.spawner.hand_over(running.theirs)
        except BaseException as error:
            running.abandon()
            if isinstance(error, OSError):
                raise CommandError(f"the process that starts commands can't be started: {error.strerror}") from error
            raise
        running.given()
        self._running.add(running)
        running.gone.add_done_callback(lambda _: self._free(running))
        return running

    def _frame(self, command: Command) -> bytes:
        start = replace(
            command.start,
            memory=self._limits.memory,
            cpu_s=self._limits.cpu_s,
            processes=self._limits.processes,
            cgroup=str(self._groups / str(next(self._numbers))) if self._groups else "",
        )
        data = wire.frame(start)
        if len(data) > wire.LARGEST:
            raise CommandError(too_large("its arguments and environment", len(data), wire.LARGEST))
        return data

    def _free(self, running: RunningCommand) -> None:
        self._running.discard(running)
        self._slots.release()
        if running.gone.result() is None and running.holder:  # which was killed, or does not answer
            asyncio.get_running_loop().run_in_executor(None, kill_left, running.holder.folder)

    async def close(self) -> None:
        """End every command, then the process that forks nannies."""
        self._is_closed = True
        for running in list(self._running):
            running.stop()
        try:
            if self._running:
                await asyncio.wait([running.gone for running in self._running], timeout=END_LIMIT_S)
        finally:
            for running in list(self._running):
                running.abandon()
            self.spawner.close()


def base_environment() -> dict[bytes, bytes]:
    """Return the environment of every command; nothing of the daemon's own is in it."""
    return {b"PATH": PATH.encode(), b"HOME": os.fsencode(os.path.expanduser("~")), b"LANG": b"C.UTF-8"}


class Program(NamedTuple):
    """A program, and which file that is."""

    path: bytes  # absolute
    version: FileVersion


def find_program(name: bytes, workdir: bytes) -> Program:
    """Find a program, on PATH or, by a name with a slash, from `workdir`.  Waits for the disk.  Raises CommandError."""
    if not name:
        raise CommandError("the name of the program is empty")
    if b"/" in name:
        path = os.path.normpath(os.path.join(workdir, name))
        places = [path.replace(b"//", b"/", 1)]  # POSIX lets two slashes at the beginning stand
    else:
        places = [os.path.join(folder, name) for folder in PATH.encode().split(b":")]
    refused = ""
    for path in places:
        try:
            status = os.stat(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                refused = refused or f"{shown(path)}: {error.strerror}"
            continue
        if stat.S_ISREG(status.st_mode) and os.access(path, os.X_OK):
            return Program(path, version_of(status))
        refused = refused or f"{shown(path)}: not permitted to execute it"
    raise CommandError(refused or f"{shown(name)}: not found")
