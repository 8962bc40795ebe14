"""Fork a nanny for each command: `python -m spyweb.programs.process FD TMP`.

FD is its end of a stream socket; with each byte come the leash of a command and its streams (see wire.py).  In TMP
commands get folders for their temporary files.  This process stays small, since a fork takes the longer the more memory
there is, and single-threaded.  It ends when the daemon's end of the socket closes; its nannies then end their commands,
as they do when it dies.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from spyweb.confined.parent import adopt_orphans, die_with_parent, leave_signals_to_parent
from spyweb.programs.nanny import Nanny, ready, wake_on
from spyweb.programs.sweep import children_of, kill_all
from spyweb.programs.wire import STREAMS, CommandRefused, frame

ENDED_FIRST = b"500"  # of 1000: a command is killed before the daemon when the kernel runs out of memory


class Forker:
    def __init__(self, control: socket.socket, temporary: bytes) -> None:
        self._control = control
        self._temporary = temporary
        self._nannies: set[int] = set()
        self._wakeup = wake_on(signal.SIGCHLD)

    def serve(self) -> None:
        """Fork a nanny for each command until the daemon is gone."""
        while True:
            for descriptor in ready([self._control.fileno(), self._wakeup]):
                if descriptor == self._wakeup:
                    os.read(descriptor, 4096)
                    self._reap()
                    continue
                data, given, _, _ = socket.recv_fds(self._control, 1, 1 + STREAMS)
                if not data:
                    return
                self._fork(given)

    def _fork(self, given: Sequence[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            with socket.socket(fileno=os.dup(given[0])) as leash, suppress(OSError):
                leash.sendall(frame(CommandRefused(reason=f"no process can be forked: {error.strerror}")))
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
