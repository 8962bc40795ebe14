"""Fork a nanny for each command: `python -m spyweb.commands.process FD TMP`.

FD is its end of a stream socket; with each byte come the leash of a command and its streams (see wire.py).  In TMP
commands get folders for their temporary files.  One nanny is always forked ahead and waits, so that no command waits
for a fork.  This process stays small, since a fork takes the longer the more memory there is, and single-threaded.  It
ends when the daemon's end of the socket closes; its nannies then end their commands, as they do when it dies.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

from spyweb.commands.nanny import wait_for_command
from spyweb.commands.sweep import children_of, kill_all
from spyweb.confined.parent import adopt_orphans, die_with_parent, leave_signals_to_parent

ENDED_FIRST = b"500"  # of 1000: a command is killed before the daemon when the kernel runs out of memory
NO_FORK_S = 0.5  # from a fork that failed, or a nanny that died at once, to the next
PID_BYTES = 4


class Forker:
    def __init__(self, control: socket.socket, temporary: bytes) -> None:
        self._control = control
        self._temporary = temporary
        self._nannies: set[int] = set()
        self._spare = 0  # the one that waits for a command
        self._taken, self._take = os.pipe()  # by which a nanny tells that it has a command
        self._wakeup, self._waker = os.pipe()

    def serve(self) -> None:
        """Keep a nanny waiting until the daemon is gone."""
        os.set_blocking(self._waker, False)
        os.set_blocking(self._taken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        control = self._control.fileno()
        events = select.poll()
        events.register(control, 0)  # only its end
        for pipe in (self._taken, self._wakeup):
            events.register(pipe, select.POLLIN)
        while True:
            if not self._spare:
                self._fork()
            for descriptor, _ in events.poll(None if self._spare else NO_FORK_S * 1000):
                if descriptor == control:
                    return
                if descriptor == self._taken:
                    self._note_taken()
                if descriptor == self._wakeup:
                    os.read(descriptor, 4096)
                    self._note_taken()  # by one that has ended already
                    self._reap()

    def _fork(self) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            print(f"no nanny can be forked: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201 - goes to the log
            return
        if pid == 0:
            self._become_nanny(parent)
        self._spare = pid
        self._nannies.add(pid)

    def _become_nanny(self, parent: int) -> None:
        """Go on as a nanny; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for descriptor in (self._wakeup, self._waker, self._taken):
                os.close(descriptor)
            wait_for_command(self._control, parent, self._temporary, self._tell_taken)
            code = 0
        finally:  # it must never go on as a second forker
            if code:
                sys.excepthook(*sys.exc_info())
            os._exit(code)

    def _note_taken(self) -> None:
        with suppress(BlockingIOError):
            while True:
                if int.from_bytes(os.read(self._taken, PID_BYTES), "little") == self._spare:
                    self._spare = 0

    def _tell_taken(self) -> None:
        os.write(self._take, os.getpid().to_bytes(PID_BYTES, "little"))
        os.close(self._take)

    def _reap(self) -> None:
        """Take note of ended nannies; end what has lost its own.

        A nanny that was killed leaves its command to this process, which adopts orphans.
        """
        in_order = True
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                in_order = in_order and status == 0 and pid in self._nannies
                self._nannies.discard(pid)
                if pid == self._spare:  # it has not even begun: so might the next
                    self._spare = 0
                    time.sleep(NO_FORK_S)
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
