"""Forks workers: `python -m spyweb.lua.worker.zygote FD`, with FD its end of a stream socket (see spyweb/lua/wire.py).

It has imported all that a worker needs and compiled our Lua, so a worker costs little time and memory.  Modules that
import `inspect` are left out (dataclasses, typing_extensions, traceback), since that takes much memory.  It stays
single-threaded.  It ends, and its workers with it, when the daemon's end of the socket closes or the daemon dies.
The daemon must start it from a thread that lives as long as itself: Linux sends the parent's death signal when that
ends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from collections import deque

sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # msgspec does without

# ruff: noqa: E402 - after the line above
from spyweb.confined import sandbox
from spyweb.confined.frames import FrameReader
from spyweb.confined.parent import die_with_parent, leave_signals_to_parent, ready, stand_behind_parent, wake_on
from spyweb.lua import wire
from spyweb.lua.worker import priority
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.link import Receiver, Sender
from spyweb.lua.worker.message_handler import MessageHandler
from spyweb.lua.worker.priority import die
from spyweb.lua.worker.runs import Registry
from spyweb.lua.worker.threads import Threads, ThreadSlots
from spyweb.lua.worker.vm import Bytecode, compile_lua_files

_DESCRIPTORS = 3  # that come with a ForkWorker: main socket, bulk socket, slots
_MOST_AT_ONCE = 64 * _DESCRIPTORS
_SWITCH = 0.0005  # seconds that a thread back from Lua waits for one that is in Python; the default is too long for us
_GARBAGE = 50_000  # objects between two garbage collections: there are few cycles here


class Zygote:
    def __init__(self, control: socket.socket, bytecode: Bytecode) -> None:
        self._control = control
        self._bytecode = bytecode
        self._reader = FrameReader(wire.decode_to_zygote)
        self._descriptors: deque[int] = deque()  # received, and not yet given to a worker
        self._workers: set[int] = set()
        self._wakeup = wake_on(signal.SIGCHLD)

    def serve(self) -> None:
        """Fork and kill workers until the daemon has ended."""
        self._send(wire.ZygoteReady(os.getpid()))
        control = self._control.fileno()
        while True:
            readable = ready([control, self._wakeup])
            if self._wakeup in readable:
                os.read(self._wakeup, 4096)
                self._reap()
            if control in readable and not self._receive():
                break
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)

    def _receive(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, 65_536, _MOST_AT_ONCE)
        self._descriptors.extend(descriptors)
        for message in self._reader.feed(data):
            if isinstance(message, wire.ForkWorker):
                self._fork(message.ticket)
            elif message.pid in self._workers:
                os.kill(message.pid, signal.SIGKILL)
        return bool(data)

    def _fork(self, ticket: int) -> None:
        descriptors = [self._descriptors.popleft() for _ in range(_DESCRIPTORS)]
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._send(wire.ForkFailed(ticket, f"fork: {error.strerror}"))
        else:
            if pid == 0:
                self._become_worker(parent, descriptors)
            self._workers.add(pid)
            self._send(wire.WorkerForked(ticket, pid))
        for descriptor in descriptors:
            os.close(descriptor)

    def _become_worker(self, parent: int, descriptors: list[int]) -> None:
        """Go on as a worker; never returns."""
        try:
            die_with_parent()
            if os.getppid() != parent:  # the zygote died before this process could be made to die with it
                os._exit(0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._control.fileno(), self._wakeup, signal.set_wakeup_fd(-1), *self._descriptors):
                os.close(descriptor)
            main_socket, bulk_socket, slots = descriptors
            work(main_socket, bulk_socket, slots, self._bytecode)
        except BaseException:  # noqa: BLE001 - a worker must never go on as a second zygote
            die()

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            self._workers.discard(pid)
            self._send(wire.WorkerExited(pid, os.waitstatus_to_exitcode(status)))

    def _send(self, message: wire.FromZygote) -> None:
        self._control.sendall(wire.frame([message]))


def work(small: int, bulk: int, slots: int, bytecode: Bytecode) -> None:
    """Live as a worker, which never returns: give up rights, report that, and work until the daemon has ended.

    The descriptors are both sockets and the shared memory.  A message becomes a step of a VM in four places: `Threads`
    reads it, `MessageHandler` finds or makes the run and claims its VM, `Executor` steps it, `Sender` sends the result.
    """
    sys.setswitchinterval(_SWITCH)
    gc.set_threshold(_GARBAGE)
    for name in os.environ.keys() - {"TZ"}:  # without it local time would be UTC as soon as no file can be read
        del os.environ[name]
    shared = ThreadSlots(slots)
    os.close(slots)
    small_socket, bulk_socket = socket.socket(fileno=small), socket.socket(fileno=bulk)
    sender = Sender(small_socket, bulk_socket)
    place = stand_behind_parent(priority.BEHIND)
    priority.let_others_ask()
    rights = [place, *sandbox.give_up_rights()]
    sender.post(wire.WorkerReady(rights))
    registry = Registry()
    console = Console(sender)
    handler = MessageHandler(registry, sender, console, bytecode)
    Threads(registry, handler, console, sender, shared).run(Receiver(small_socket), Receiver(bulk_socket))
    threading.Event().wait()  # other threads go on


def main() -> None:
    die_with_parent()
    leave_signals_to_parent()
    time.tzset()
    time.localtime()
    control = socket.socket(fileno=int(sys.argv[1]))
    bytecode = compile_lua_files()
    gc.collect()
    gc.freeze()  # a collection then does not write to the memory that is shared with the workers
    try:
        Zygote(control, bytecode).serve()
    except ConnectionError:
        return  # the daemon has ended, and the workers end with this process


if __name__ == "__main__":
    main()
