"""The SQL of one job: its process, and whose turn it is to use it.

This module is the daemon's side; the other side is process.py.  The process that forks them is started when the first
is needed, and again when it has died.
"""

from __future__ import annotations

import asyncio
import socket
import time
from asyncio import Condition, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from spyweb.clock import Clock, Handle
from spyweb.confined.child import ChildProcess, ForkServer
from spyweb.confined.frames import HEADER
from spyweb.errors import SpywebError, StoreError
from spyweb.model import JobId, Owner
from spyweb.store.sqlite.damage import FileIdentity
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


LOCKED = "database is locked"
GRACE_S = 2.0  # for a statement that was told to end, before its process is ended

log = structlog.get_logger()


@asynccontextmanager
async def time_limit(clock: Clock, seconds: float) -> AsyncIterator[Callable[[float], None]]:
    """Limit a block as asyncio.timeout does, on a given clock; gives what sets the end to so many seconds from then."""
    timer: Handle | None = None
    async with asyncio.timeout(None) as limit:

        def end_in(seconds: float) -> None:
            nonlocal timer
            if timer:
                timer.cancel()
            now = asyncio.get_running_loop().time
            timer = clock.call_later(seconds, lambda: limit.reschedule(now()))

        end_in(seconds)
        try:
            yield end_in
        finally:
            if timer:
                timer.cancel()


class Session:
    """The process for one job's SQL, which its runs use in turn."""

    def __init__(self, job: JobId, opening: Opening, clock: Clock, spawner: SqlSpawner) -> None:
        self.job = job
        self.opening = opening
        self._clock = clock
        self._spawner = spawner
        self._changed = Condition()
        self.process: SqlProcess | None = None  # none: and therefore no transaction
        self._file: FileIdentity | None = None
        self._limit: Callable[[float], None] | None = None  # of the statement under way
        self._cpu_before_s = 0.0  # of its process
        self.calls = 0  # that have it or wait for it
        self.runs: set[Owner] = set()  # have used it and not ended
        self.in_transaction: Owner | None = None  # the run whose transaction is open
        self.running: Statement | None = None
        self.turn_of: Owner | None = None
        self.used_at = 0.0
        self.has_state = False  # that a run may still need: last_insert_rowid(), a temporary table

    @property
    def is_idle(self) -> bool:
        """Return whether it can be closed without any run noticing."""
        return not self.calls and self.in_transaction is None and not (self.runs and self.has_state)

    def is_free_for(self, run: Owner) -> bool:
        return self.turn_of is None and self.in_transaction in (None, run)

    async def take_turn(self, run: Owner, patience_s: float) -> None:
        """Wait for the job's other runs, but for an open transaction only this long.  Raises StoreError."""
        async with self._changed:
            while not self.is_free_for(run):
                try:
                    async with time_limit(self._clock, patience_s):
                        await self._changed.wait_for(lambda: self.is_free_for(run))
                except TimeoutError:
                    if self.in_transaction not in (None, run):
                        raise StoreError(LOCKED) from None
            self.turn_of = run

    async def leave_turn(self) -> None:
        async with self._changed:
            self.turn_of = None
            self._changed.notify_all()

    async def perform(self, statement: Statement) -> Answered:
        """Execute a statement of the run whose turn it is.  Raises StoreError, NoAccess."""
        self.running = statement
        try:
            process = await self._started()
            if statement.unwanted:
                return Answered(reason="the run has ended", in_transaction=self.in_transaction is not None)
            return await self._perform(process, statement)
        finally:
            self.running = None

    async def _perform(self, process: SqlProcess, statement: Statement) -> Answered:
        self._cpu_before_s = process.cpu_s
        time_is_up = self._clock.call_later(statement.longest_s, process.interrupt)
        try:
            async with time_limit(self._clock, statement.longest_s + GRACE_S) as self._limit:
                return await process.perform(statement, self._clock)
        except TimeoutError:
            log.warning("an SQL statement did not end; its process is ended", job=self.job, run=self.turn_of)
            self._end_process()
            return Answered(reason=statement.too_long, cpu_s=statement.longest_s + GRACE_S)
        except BaseException:  # half of an answer may be on its way
            self._end_process()
            raise
        finally:
            time_is_up.cancel()
            self._limit = None

    def cpu_of(self, statement: Statement) -> float:
        """Return the CPU seconds that the statement has used so far; 0 unless it is running."""
        if self.running is not statement or self._limit is None or self.process is None:
            return 0.0
        return max(0.0, self.process.cpu_s - self._cpu_before_s)

    def end_statement(self) -> None:
        """Interrupt the running statement because its run is gone."""
        if self.running is None:
            return
        self.running.unwanted = True
        if self.process is not None:
            self.process.interrupt()
        if self._limit is not None:
            self._limit(GRACE_S)

    async def roll_back(self) -> None:
        """Roll back a transaction that was left open, if there is one; if that fails, end the process."""
        if self.process is None:
            return
        try:
            async with asyncio.timeout(GRACE_S):
                answered = await self.process.perform(None, self._clock)
            if answered.error is not None:
                raise answered.error
        except (StoreError, TimeoutError) as error:
            log.warning("a transaction was not rolled back; its process is ended", job=self.job, reason=str(error))
            self._end_process()

    async def close(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            await process.close()

    def _end_process(self) -> None:
        if self.process is not None:
            self.process.end()
            self.process = None

    async def _started(self) -> SqlProcess:
        # To a file that was removed or replaced, writes would be lost.
        if self._file and (error := self._file.trouble()):
            if self.in_transaction is not None:
                raise error  # its transaction is in that file
            self._file = None
            await self.close()
        if self.process is not None and self.process.has_ended and self.in_transaction is None:
            self._end_process()
        if self.process is None:
            self.process = await SqlProcess.start(self._spawner, self.opening, self.job)
            try:
                self._file = FileIdentity(self.opening.path)
            except SpywebError:
                self._end_process()
                raise
        return self.process
