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
import sqlite3
import sys
from contextlib import suppress
from threading import Lock, Thread
from time import thread_time, time_ns

from msgspec import structs

from spyweb import limits
from spyweb.confined.frames import HEADER, receive_frame, receive_whole
from spyweb.confined.parent import leave_signals_to_parent
from spyweb.confined.sandbox import forbid_programs_and_network
from spyweb.errors import NoAccess, SpywebError
from spyweb.model import MIB, JobId
from spyweb.store.access import explain
from spyweb.store.sqlite.failures import translate
from spyweb.store.user_sql.connection import (
    Answered,
    Opening,
    SqlRequest,
    Statement,
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


class RunningStatement:
    """The running statement, shared with the thread that interrupts it on request."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._number = 0
        self._unwanted = 0  # number of the latest statement to be interrupted, which may not have begun
        self._statement: Statement | None = None

    def begin(self, connection: sqlite3.Connection, number: int, statement: Statement) -> None:
        with self._lock:
            self._connection, self._number, self._statement = connection, number, statement
            if number == self._unwanted:
                statement.unwanted = True

    def end(self) -> None:
        with self._lock:
            self._statement = None

    def interrupt(self, number: int) -> None:
        """Interrupt the statement of this number, unless it has ended meanwhile."""
        with self._lock:
            self._unwanted = number
            if self._statement is not None and self._connection is not None and number == self._number:
                self._statement.unwanted = True
                self._connection.interrupt()


class SqlServer:
    """Answers the daemon's requests, in their order, on one job's connection."""

    def __init__(self, requests: socket.socket, running: RunningStatement) -> None:
        self._socket = requests
        self._running = running
        self._now_ms = time_ns() // 1_000_000

    def serve(self) -> None:
        """Answer requests until the daemon closes the socket."""
        setup = setup_decoder.decode(receive_frame(self._socket))
        opened = self._open(setup.opening, setup.job)
        if isinstance(opened, Exception):
            self._send(Answered(reason=str(opened), is_forbidden=isinstance(opened, NoAccess)))
            return
        connection, user = opened
        self._send(Answered(pid=os.getpid()))
        try:
            while body := receive_frame(self._socket):
                self._send(self._answer(connection, user, request_decoder.decode(body)))
        finally:
            connection.close()

    def _open(self, opening: Opening, job: JobId) -> tuple[sqlite3.Connection, UserConnection] | Exception:
        guard = Guard(FUNCTIONS)
        try:
            connection = opening.connect(job, guard, lambda: self._now_ms)
            connection.execute(f"PRAGMA hard_heap_limit = {HEAP_LIMIT}")
        except sqlite3.Error as error:
            return translate(error, opening.path)
        except OSError as error:
            return explain(error, opening.path)
        except SpywebError as error:
            return error
        return connection, UserConnection(connection, guard)

    def _answer(self, connection: sqlite3.Connection, user: UserConnection, request: SqlRequest) -> Answered:
        statement = request.statement
        if statement is None:
            return user.roll_back()
        self._now_ms = request.now_ms
        self._running.begin(connection, request.number, statement)
        began = thread_time()
        try:
            return structs.replace(user.perform(statement), cpu_s=thread_time() - began)
        finally:
            self._running.end()
            trim = getattr(_libc, "malloc_trim", None)  # of glibc
            if trim and len(statement.sql) > limits.SQL_KEPT:
                trim(0)  # after a long statement free memory lies in pieces between memory still in use

    def _send(self, answered: Answered) -> None:
        try:
            data = frame(answered)
        except (MemoryError, OverflowError) as error:
            data = frame(Answered(reason=f"the rows are too large: {error}", in_transaction=answered.in_transaction))
        self._socket.sendall(data)


def _watch(commands: socket.socket, running: RunningStatement) -> None:
    """Interrupt the statements that the daemon names; end this process when the daemon closes the socket or ends."""
    while number := receive_whole(commands, HEADER):
        running.interrupt(int.from_bytes(number, "little"))
    os._exit(0)


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
    running = RunningStatement()
    Thread(target=_watch, args=(commands, running), daemon=True).start()
    with suppress(ConnectionError):  # the daemon has ended
        SqlServer(requests, running).serve()


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
