"""Start the processes that execute the SQL of scripts, and talk to them.

This module is the daemon's side; the other side is process.py.  The process that forks them is started when the first
is needed, and again when it has died.
"""

from __future__ import annotations

import asyncio
import socket
import time
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

from spyweb.clock import Clock
from spyweb.confined.child import ChildProcess, ForkServer
from spyweb.confined.frames import HEADER
from spyweb.errors import StoreError
from spyweb.model import JobId
from spyweb.store.user_sql.connection import Answered, Opening, SqlRequest, SqlSetup, Statement, decode_answer, frame

# glibc gives the memory of a large statement back to the system once that has ended.
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "1048576", "MALLOC_MMAP_THRESHOLD_": "1048576"}
LARGE = 1 << 18  # bytes of an answer that is decoded beside the event loop
START_LIMIT_S = 10.0  # until a process answers
CPU_CLOCK = 2  # of a process, in the number of its clock
END_LIMIT_S = 2.0  # for a process to close its connection, before it is ended


class SqlSpawner(ForkServer):
    """Has a small process fork one for each job.  It belongs to no event loop, so that several may share it."""

    def __init__(self) -> None:
        libraries = ("msgspec", "cryptography")
        super().__init__(lambda: ChildProcess("spyweb.store.user_sql.process", libraries=libraries, variables=MALLOC))

    def spawn(self) -> tuple[socket.socket, socket.socket]:
        """Fork a process; return the daemon's ends of its two sockets.  Raises StoreError."""
        try:
            requests, its_requests = socket.socketpair()
            commands, its_commands = socket.socketpair()
            with its_requests, its_commands:
                self.hand_over([its_requests.fileno(), its_commands.fileno()])
        except OSError as error:
            raise StoreError(f"no process for SQL could be started: {error.strerror}") from error
        requests.setblocking(False)
        commands.setblocking(False)
        return requests, commands


class SqlProcess:
    """The daemon's end of the process for one job's SQL."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, commands: socket.socket) -> None:
        self._reader = reader
        self._writer = writer
        self._commands = commands
        self.pid = 0
        self._number = 0  # of the latest request

    @classmethod
    async def start(cls, spawner: SqlSpawner, opening: Opening, job: JobId) -> SqlProcess:
        """Fork a process and have it open the job's connection.  Raises StoreError, NoAccess."""
        requests, commands = spawner.spawn()
        try:
            reader, writer = await asyncio.open_connection(sock=requests)
        except BaseException:
            requests.close()
            commands.close()
            raise
        process = cls(reader, writer, commands)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                opened = await process._ask(frame(SqlSetup(job=job, opening=opening)))
        except TimeoutError:
            process.end()
            raise StoreError(f"the process for its SQL was not ready within {START_LIMIT_S:g} s") from None
        except BaseException:
            process.end()
            raise
        if opened.error is not None:
            process.end()
            raise opened.error
        process.pid = opened.pid
        return process

    async def perform(self, statement: Statement | None, clock: Clock) -> Answered:
        """Execute a statement, or without one roll back a transaction that was left open.

        Raises StoreError when the process ends.
        """
        self._number = (self._number + 1) & 0xFFFF_FFFF
        return await self._ask(frame(SqlRequest(number=self._number, now_ms=clock.now_ms(), statement=statement)))

    @property
    def cpu_s(self) -> float:
        """Return the CPU seconds that the process has used since its start; 0 if the system does not tell."""
        with suppress(OSError):
            return time.clock_gettime(~self.pid << 3 | CPU_CLOCK)
        return 0.0

    @property
    def has_ended(self) -> bool:
        return self._reader.at_eof()

    def interrupt(self) -> None:
        """Make the running statement fail."""
        with suppress(OSError):
            self._commands.send(self._number.to_bytes(HEADER, "little"))

    def end(self) -> None:
        """End the process at once, whatever it is doing."""
        self._commands.close()
        self._writer.transport.abort()

    async def close(self) -> None:
        """Let the process close its connection, which rolls back what is open and, for the last one, merges the log."""
        try:
            self._writer.write_eof()
            async with asyncio.timeout(END_LIMIT_S):
                await self._reader.read()
        except (OSError, TimeoutError, RuntimeError):
            pass
        finally:
            self.end()

    async def _ask(self, message: bytes) -> Answered:
        try:
            self._writer.write(message)
            size = int.from_bytes(await self._reader.readexactly(HEADER), "little")
            body = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise StoreError("the process for its SQL ended: an open transaction is rolled back") from error
        if size > LARGE:
            with suppress(RuntimeError):  # no thread can be started
                return await asyncio.to_thread(decode_answer, body)
        return decode_answer(body)
