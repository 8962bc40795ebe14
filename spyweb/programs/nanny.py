"""Fork a nanny for each command: `python -m spyweb.programs.nanny FD TMP`.

FD is its end of a stream socket; with each byte come the leash of a command and its streams (see wire.py).  In TMP
commands get folders for their temporary files.  This process stays small, since a fork takes the longer the more memory
there is, and single-threaded.  It ends when the daemon's end of the socket closes; its nannies then end their commands,
as they do when it dies.

A nanny starts its command, and ends all that this has started, before it or with it.  Whatever the command leaves
behind, however often it forks and detaches itself, becomes a child of its nanny.  When the command has ended, or is to
end, what is left gets SIGTERM, and SIGKILL after GRACE_S.  When the daemon or the process that has forked the nanny
dies, everything is killed at once.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from spyweb.confined.frames import receive_frame
from spyweb.confined.parent import adopt_orphans, die_with_parent, leave_signals_to_parent, ready, wake_on
from spyweb.programs import wire
from spyweb.programs.cgroup import CommandGroup
from spyweb.programs.sweep import children_of, descendants_of, kill_all, make_folder, remove_folder, send
from spyweb.programs.wire import CommandEnded, Outcome, StartCommand, shown

AGAIN_S = 0.02  # from one sweep to the next, if the first has left something
UMASK = 0o022
FILES = 1024  # descriptors: programs that use select() can't have more
ENDED_FIRST = b"500"  # of 1000: a command is killed before the daemon when the kernel runs out of memory
BEHIND, LOWEST = 5, 19  # levels of niceness: behind the daemon, and the lowest there is

_PARENT_DIED = signal.SIGUSR1
# A command ignores no signal, even one that the nanny or the daemon's parent (such as `nohup`) ignores.
_FROM_THE_START = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class CannotStart(Exception):
    """The command can't be started; the text says why."""


class Nanny:
    """One command on its leash."""

    def __init__(self, leash: socket.socket) -> None:
        self._leash = leash
        self._folder = b""  # for temporary files
        self._wakeup = wake_on(signal.SIGCHLD, _PARENT_DIED)
        self._pid = 0
        self._status: int | None = None  # once the command has ended
        self._was_stopped = False
        self._must_end_now = False
        self._deadline: float | None = None  # for what has got SIGTERM
        adopt_orphans()
        die_with_parent(_PARENT_DIED)

    def serve(self, streams: Sequence[int], temporary: bytes) -> None:
        """Start the command, and report its end once all its processes ended.  Raises ConnectionError: nobody waits."""
        outcome: Outcome
        try:
            self._folder = _folder_in(temporary)
            self._leash.sendall(wire.frame(wire.CommandTaken(nanny=os.getpid(), folder=self._folder)))
            start = receive_frame(self._leash)
            if not start:
                raise ConnectionError  # nobody wants it any more
            outcome = self._look_after(wire.decode_start(start), streams)
        except CannotStart as error:
            outcome = wire.CommandRefused(reason=str(error))
        finally:
            if self._folder:
                remove_folder(self._folder)
        self._leash.sendall(wire.frame(outcome))

    def _look_after(self, start: StartCommand, streams: Sequence[int]) -> CommandEnded:
        try:
            group = CommandGroup.make(start.cgroup, memory=start.memory, processes=start.processes)
        except OSError as error:
            raise CannotStart(f"its control group {start.cgroup}: {error.strerror}") from error
        try:
            self._pid = _start(start, streams, self._folder, group)
            for descriptor in streams:
                os.close(descriptor)
            self._wait_until_gone(group)
        finally:
            group.remove()
        return CommandEnded(exit_code=self._status or 0, was_stopped=self._was_stopped)

    def _wait_until_gone(self, group: CommandGroup) -> None:
        while self._reap():
            if self._status is not None and self._deadline is None:
                self._ask_to_end()
            self._listen()
            if self._must_end_now or (self._deadline is not None and time.monotonic() >= self._deadline):
                group.kill()
                kill_all(self._below())
                self._deadline = time.monotonic() + AGAIN_S

    def _reap(self) -> bool:
        """Note the ended processes; return whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._pid:
                self._status = os.waitstatus_to_exitcode(status)

    def _listen(self) -> None:
        """Wait for a signal, a message on the leash, or the deadline."""
        timeout = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        leash = self._leash.fileno()
        heard = [self._wakeup] if self._must_end_now else [self._wakeup, leash]
        readable = ready(heard, timeout)
        if self._wakeup in readable and _PARENT_DIED in os.read(self._wakeup, 4096):
            self._end_now()
        if leash not in readable:
            return
        try:
            data = self._leash.recv(1)
        except OSError:
            data = b""
        if data != wire.STOP:
            self._end_now()
        elif self._deadline is None:
            self._was_stopped = self._status is None
            self._ask_to_end()

    def _end_now(self) -> None:
        self._must_end_now = True
        self._was_stopped = self._was_stopped or self._status is None

    def _ask_to_end(self) -> None:
        send(descendants_of(self._below()), signal.SIGTERM, signal.SIGCONT)
        self._deadline = time.monotonic() + wire.GRACE_S

    def _below(self) -> list[int]:
        if self._status is None:  # named, for systems that do not tell who has which children
            return list({self._pid, *children_of(os.getpid())})
        return children_of(os.getpid())


def _folder_in(temporary: bytes) -> bytes:
    try:
        return make_folder(temporary)
    except OSError as error:
        reason = f"its folder for temporary files, {shown(error.filename)}: {error.strerror}"
        raise CannotStart(reason) from error


def _start(start: StartCommand, streams: Sequence[int], folder: bytes, group: CommandGroup) -> int:
    """Start the command, and return its pid.  Raises CannotStart.

    This process takes its folder, limits and group first, and the command has them from it: so it need not be copied
    for what has to be done between a fork and an execution.
    """
    try:
        os.chdir(start.workdir)
    except OSError as error:
        raise CannotStart(f"its workdir {shown(start.workdir)}: {error.strerror}") from error
    try:
        os.umask(UMASK)
        _limit(start, in_group=group.is_in_force)
        with group.entered():
            if wire.version_of(os.stat(start.program)) != start.version:
                raise CannotStart(f"{shown(start.program)} was replaced after it had been permitted")
            pid = os.posix_spawn(
                start.program,
                list(start.arguments),
                dict(start.environment) | {b"TMPDIR": folder},
                file_actions=[(os.POSIX_SPAWN_DUP2, given, number) for number, given in enumerate(streams)],
                setsid=True,
                setsigmask=[],
                setsigdef=_FROM_THE_START,
            )
    except OSError as error:
        raise CannotStart(_why_not(start.program, error)) from error
    with suppress(OSError):  # with all that it may have started meanwhile
        os.setpriority(os.PRIO_PGRP, pid, min(os.getpriority(os.PRIO_PROCESS, 0) + BEHIND, LOWEST))
    return pid


def _limit(start: StartCommand, *, in_group: bool) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most) if most >= 0 else FILES, most))
    if start.memory and not in_group:
        resource.setrlimit(resource.RLIMIT_AS, (start.memory, start.memory))
    if start.cpu_s:
        resource.setrlimit(resource.RLIMIT_CPU, (start.cpu_s, start.cpu_s + 1))


def _why_not(program: bytes, error: OSError) -> str:
    match error.errno:
        case errno.ENOENT if os.path.exists(program):
            return f"{shown(program)}: the interpreter in its first line was not found"
        case errno.ENOENT | errno.ENOTDIR:
            return f"{shown(program)}: not found"
        case errno.EACCES | errno.EPERM:
            return f"{shown(program)}: not permitted to execute it"
        case errno.ENOEXEC:
            return f"{shown(program)}: it is neither a program nor a script with an interpreter in its first line"
        case errno.E2BIG:
            return f"{shown(program)}: its arguments are too long"
        case _:
            return f"{shown(program)}: {error.strerror}"


class Forker:
    def __init__(self, control: socket.socket, temporary: bytes) -> None:
        self._control = control
        self._temporary = temporary
        self._nannies: set[int] = set()
        self._wakeup = wake_on(signal.SIGCHLD)

    def serve(self) -> None:
        """Fork a nanny for each command until the daemon has ended."""
        while True:
            for descriptor in ready([self._control.fileno(), self._wakeup]):
                if descriptor == self._wakeup:
                    os.read(descriptor, 4096)
                    self._reap()
                    continue
                data, given, _, _ = socket.recv_fds(self._control, 1, 1 + wire.STREAMS)
                if not data:
                    return
                self._fork(given)

    def _fork(self, given: Sequence[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            with socket.socket(fileno=os.dup(given[0])) as leash, suppress(OSError):
                leash.sendall(wire.frame(wire.CommandRefused(reason=f"no process can be forked: {error.strerror}")))
        else:
            if pid == 0:
                self._become_nanny(parent, given)
            self._nannies.add(pid)
        for descriptor in given:
            os.close(descriptor)

    def _become_nanny(self, parent: int, given: Sequence[int]) -> None:
        """Go on as a nanny; never returns."""
        code = 1
        try:
            self._control.close()
            os.close(self._wakeup)
            for descriptor in given:
                os.set_inheritable(descriptor, False)
            leash, *streams = given
            nanny = Nanny(socket.socket(fileno=leash))
            if os.getppid() == parent:
                with suppress(ConnectionError):
                    nanny.serve(streams, self._temporary)
            code = 0
        finally:  # it must never go on as a second forker
            if code:
                sys.excepthook(*sys.exc_info())
            os._exit(code)

    def _reap(self) -> None:
        """Take note of ended nannies; end what one that was killed has left to this process, which adopts orphans."""
        in_order = True
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                in_order = in_order and status == 0 and pid in self._nannies
                self._nannies.discard(pid)
        if not in_order and (orphans := [pid for pid in children_of(os.getpid()) if pid not in self._nannies]):
            kill_all(orphans)


def main() -> None:
    die_with_parent()
    leave_signals_to_parent()
    adopt_orphans()
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(ENDED_FIRST)
    gc.collect()
    gc.freeze()  # a collection then does not write to the memory that is shared with the nannies
    Forker(socket.socket(fileno=int(sys.argv[1])), os.fsencode(sys.argv[2])).serve()


if __name__ == "__main__":
    main()
