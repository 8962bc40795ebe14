"""Execute the SQL of scripts, one process per job: `python -m spyweb.store.user_sql.process FD`.

The process that is started so forks one for each pair of sockets that it receives over FD, its end of a stream socket.
Thus a statement that takes much memory or time affects only its own job: SQLite's memory limit is for a whole process,
and a statement that can't be interrupted is ended with its process.  All of them end with the daemon.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from threading import Thread
from time import thread_time, time_ns

from msgspec import structs

from spyweb import limits
from spyweb.confined.frames import HEADER, receive_frame, receive_whole
from spyweb.confined.parent import leave_signals_to_parent
from spyweb.confined.sandbox import forbid_programs_and_network
from spyweb.errors import NoAccess, SpywebError
from spyweb.model import MIB
from spyweb.store.sqlite.failures import opening
from spyweb.store.user_sql.connection import (
    Answered,
    SqlRequest,
    UserConnection,
    frame,
    request_decoder,
    setup_decoder,
)
from spyweb.store.user_sql.views import FUNCTIONS, Guard

HEAP_LIMIT = 128 * MIB  # of SQLite in one process: a statement that would need more ends with an error
BEHIND, LOWEST = 5, 19  # levels of niceness: behind the daemon, and the lowest there is
ENDED_FIRST = "500"  # of 1000: it is killed before the daemon when the kernel runs out of memory
SOCKETS = 2  # that come with each request for a process

_libc = ctypes.CDLL(None)


class SqlServer:
    """Answers the daemon's requests, in their order, on one job's connection."""

    def __init__(self, requests: socket.socket) -> None:
        self._socket = requests
        self._now_ms = time_ns() // 1_000_000
        self._number: int | None = None  # of the running statement
        self._unwanted = -1  # number of the latest statement to be interrupted, which may not have begun

    def serve(self) -> None:
        """Answer requests until the daemon closes the socket."""
        setup = setup_decoder.decode(receive_frame(self._socket))
        guard = Guard(FUNCTIONS)
        try:
            with opening(setup.opening.path):
                connection = setup.opening.connect(setup.job, guard, lambda: self._now_ms)
                connection.execute(f"PRAGMA hard_heap_limit = {HEAP_LIMIT}")
        except SpywebError as error:
            self._send(Answered(reason=str(error), is_forbidden=isinstance(error, NoAccess)))
            return
        user = UserConnection(connection, guard, self.is_unwanted)
        self._send(Answered(pid=os.getpid()))
        try:
            while body := receive_frame(self._socket):
                self._send(self.answer(user, request_decoder.decode(body)))
        finally:
            connection.close()

    def answer(self, user: UserConnection, request: SqlRequest) -> Answered:
        statement, self._number, self._now_ms = request.statement, request.number, request.now_ms
        if statement is None:
            return user.roll_back()
        began = thread_time()
        try:
            return structs.replace(user.perform(statement), cpu_s=thread_time() - began)
        finally:
            self._number = None
            trim = getattr(_libc, "malloc_trim", None)  # of glibc
            if trim and len(statement.sql) > limits.SQL_KEPT:
                trim(0)  # after a long statement free memory lies in pieces between memory still in use

    def watch(self, commands: socket.socket) -> None:
        """Interrupt the statements that the daemon names; end this process when the daemon closes the socket or ends.

        Runs on a separate thread.
        """
        while number := receive_whole(commands, HEADER):
            self._unwanted = int.from_bytes(number, "little")
        os._exit(0)

    def is_unwanted(self) -> bool:
        return self._number == self._unwanted

    def _send(self, answered: Answered) -> None:
        try:
            data = frame(answered)
        except (MemoryError, OverflowError) as error:
            data = frame(Answered(reason=f"the rows are too large: {error}", in_transaction=answered.in_transaction))
        self._socket.sendall(data)


def _work(descriptors: list[int]) -> None:
    """Run as the process for one job's SQL.

    Statements may compute for seconds, each job's in its own process, and the daemon must not wait for a processor
    because of them, nor be killed before them when memory runs out.
    """
    with suppress(OSError):  # then it is as it was
        os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + BEHIND, LOWEST))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(ENDED_FIRST)
    forbid_programs_and_network()
    requests, commands = (socket.socket(fileno=descriptor) for descriptor in descriptors)
    server = SqlServer(requests)
    Thread(target=server.watch, args=(commands,), daemon=True).start()
    with suppress(ConnectionError):  # the daemon has ended
        server.serve()


def _fork(control: socket.socket, descriptors: list[int]) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        refusal = frame(Answered(reason=f"no process for SQL could be started: {error.strerror}"))
        with suppress(OSError), socket.socket(fileno=os.dup(descriptors[0])) as requests:
            requests.sendall(refusal)
        pid = -1
    if pid == 0:
        code = 1
        try:
            control.close()
            _work(descriptors)
            code = 0
        finally:  # it must never go on into the loop of the process that forks
            os._exit(code)
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    leave_signals_to_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how one of them ended
    gc.collect()
    gc.freeze()  # a collection then does not write to the memory that is shared with the forked processes
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, SOCKETS)
        if not data:
            return
        _fork(control, list(descriptors))


if __name__ == "__main__":
    main()
