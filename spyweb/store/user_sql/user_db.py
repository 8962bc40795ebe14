"""The scripts' own SQL: one database file for all jobs, one connection for each job that uses it.

A connection executes one statement at a time, in its own process.  While a run, or one of its branches, has a
transaction open, the job's others wait; a write that meets another job's transaction waits too: on the event loop, for
a limited time, and nothing else waits for it.  The number of connections is limited: an idle one is closed when another
job needs one, or after a while.  This is the daemon's side; the other is process.py.
"""

from __future__ import annotations

import asyncio
import socket
import time
from asyncio import Condition, Lock, Semaphore, StreamReader, StreamWriter, TaskGroup
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import structlog
from msgspec import structs
from msgspec.structs import replace

from spyweb import descriptors, limits
from spyweb.clock import Clock, Handle
from spyweb.confined.child import ChildProcess, ForkServer
from spyweb.confined.frames import HEADER
from spyweb.errors import NoAccess, SpywebError, StoreClosed, StoreError
from spyweb.model import JobId, Owner
from spyweb.store.sqlite.damage import FileIdentity
from spyweb.store.user_sql.connection import Answered, Opening, SqlRequest, SqlSetup, Statement, decode_answer, frame

# glibc gives the memory of a large statement back to the system once that has ended.
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "1048576", "MALLOC_MMAP_THRESHOLD_": "1048576"}
LARGE = 1 << 18  # bytes of an answer that is decoded beside the event loop
START_LIMIT_S = 10.0  # until a process answers
CPU_CLOCK = 2  # of a process, in the number of its clock
END_LIMIT_S = 2.0  # for a process to close its connection, before it is ended
LOCKED = "database is locked"
GRACE_S = 2.0  # for a statement that was asked to end, before its process is ended
PATIENCE_S = 5.0  # how long another run's or job's transaction is waited for
RETRY_S = 0.02
MOST_CONNECTIONS = 64
SHARE = 8  # the part of all descriptors that their processes may have: one of so many ...
DESCRIPTORS_EACH = 2  # ... of each two sockets
LONG = 16 * limits.SQL_KEPT  # bytes; of statements longer than this one is executed at a time
MOST_AT_ONCE = 8  # statements: those that never end must not take every core from the rest
IDLE_S = 15 * 60.0  # after which a connection is closed
CHECK_S = 60.0  # between two checks for such

log = structlog.get_logger()


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
            if opened.error is not None:
                raise opened.error
        except BaseException as error:
            process.end()
            if isinstance(error, TimeoutError):
                raise StoreError(f"the process for its SQL was not ready within {START_LIMIT_S:g} s") from None
            raise
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
        """End the process at once, also during a statement."""
        self._commands.close()
        self._writer.transport.abort()

    async def close(self) -> None:
        """Let the process close its connection: a transaction is rolled back, and the last close merges the log."""
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


@asynccontextmanager
async def time_limit(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Limit a block as asyncio.timeout does, on a given clock."""
    now = asyncio.get_running_loop().time
    async with asyncio.timeout(None) as limit:
        timer = clock.call_later(seconds, lambda: limit.reschedule(now()))
        try:
            yield
        finally:
            timer.cancel()


@dataclass(eq=False)
class Session:
    """The process for one job's SQL, which its runs use in turn."""

    job: JobId
    opening: Opening
    clock: Clock
    spawner: SqlSpawner
    process: SqlProcess | None = None  # none: and therefore no transaction
    calls: int = 0  # that have it or wait for it
    runs: set[Owner] = field(default_factory=set)  # have used it and not ended
    in_transaction: Owner | None = None  # the run whose transaction is open
    running: Statement | None = None
    turn_of: Owner | None = None
    used_at: float = 0.0
    has_state: bool = False  # that a run may still need: last_insert_rowid(), a temporary table
    _changed: Condition = field(default_factory=Condition)
    _file: FileIdentity | None = None
    _alarm: Handle | None = None  # for the statement under way: it is to end, or, a while later, its process is ended
    _cpu_before_s: float = 0.0  # of its process

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
                    async with time_limit(self.clock, patience_s):
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
        self._alarm = self.clock.call_later(statement.longest_s, self.end_statement)
        try:
            return await process.perform(statement, self.clock)
        except BaseException as error:  # half of an answer may be on its way
            if self.process is None and isinstance(error, StoreError):
                return Answered(reason=statement.too_long, cpu_s=statement.longest_s + GRACE_S)
            self._end_process()
            raise
        finally:
            self._alarm.cancel()
            self._alarm = None

    def cpu_of(self, statement: Statement) -> float:
        """Return the CPU seconds that the statement has used so far; 0 unless it is running."""
        if self.running is not statement or self._alarm is None or self.process is None:
            return 0.0
        return max(0.0, self.process.cpu_s - self._cpu_before_s)

    def end_statement(self) -> None:
        """Interrupt the running statement: its run has ended, or its time is up."""
        if self.running is None:
            return
        self.running.unwanted = True
        if self.process is not None and self._alarm is not None:
            self.process.interrupt()
            self._alarm.cancel()
            self._alarm = self.clock.call_later(GRACE_S, self._give_up)

    def _give_up(self) -> None:
        log.warning("an SQL statement did not end; its process is ended", job=self.job, run=self.turn_of)
        self._end_process()

    async def roll_back(self) -> None:
        """Roll back a transaction that was left open, if there is one; if that fails, end the process."""
        if self.process is None:
            return
        try:
            async with asyncio.timeout(GRACE_S):
                answered = await self.process.perform(None, self.clock)
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
            self.process = await SqlProcess.start(self.spawner, self.opening, self.job)
            try:
                self._file = FileIdentity(self.opening.path)
            except SpywebError:
                self._end_process()
                raise
        return self.process


class SqlUser(NamedTuple):
    """A job and what its views show: with other permissions it has another connection."""

    job: JobId
    sees_others: bool = True


class UserDatabase:
    """Gives each job that asks a connection.  A spawner that was passed in belongs to the caller and is left open."""

    def __init__(
        self,
        opening: Opening,
        clock: Clock,
        *,
        spawner: SqlSpawner | None = None,
        patience_s: float = PATIENCE_S,
        most_connections: int = MOST_CONNECTIONS,
        note_begun: Callable[[], None] = lambda: None,  # called on a thread before the first change is acknowledged
    ) -> None:
        self._opening = opening
        self._clock = clock
        self._spawner = spawner or SqlSpawner()
        self._owns_spawner = spawner is None
        self._patience_s = patience_s
        self._most_connections = min(most_connections, descriptors.share(SHARE, DESCRIPTORS_EACH))
        self._sessions: dict[SqlUser, Session] = {}
        self._retrying = Lock()  # of the writes that met another job's transaction, one at a time tries again
        self._at_once = Semaphore(MOST_AT_ONCE)
        self._long = Lock()  # for long statements: preparing one takes much more memory than its text
        self._check: Handle | None = None
        self._is_open = False
        self._note_begun = note_begun
        self._has_begun = False
        self._tasks = TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the running statements and roll back open transactions."""
        self._is_open = False
        if self._check:
            self._check.cancel()
        for session in self._sessions.values():
            session.end_statement()
        await self._tasks.__aexit__(None, None, None)
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        if self._owns_spawner:
            self._spawner.close()

    async def ask(self, job: JobId, run: Owner, statement: Statement, *, sees_others: bool = True) -> Answered:
        """Execute a statement, which ends when the caller is cancelled.  Raises StoreError.

        With `sees_others` the views show what other jobs keep, too.
        """
        deadline = self._clock.monotonic() + self._patience_s
        user = SqlUser(job, sees_others)
        answered = await self._try(user, run, statement)
        if not answered.is_busy:
            return answered
        try:
            async with time_limit(self._clock, deadline - self._clock.monotonic()):
                await self._retrying.acquire()
        except TimeoutError:
            return Answered(reason=LOCKED)
        try:
            while True:
                answered = await self._try(user, run, statement)
                if not answered.is_busy or self._clock.monotonic() + RETRY_S > deadline:
                    return answered
                await self._clock.sleep(RETRY_S)
        finally:
            self._retrying.release()

    def cpu_of(self, job: JobId, statement: Statement, *, sees_others: bool = True) -> float:
        """Return the CPU seconds that a running statement has used so far."""
        session = self._sessions.get(SqlUser(job, sees_others))
        return session.cpu_of(statement) if session else 0.0

    def run_ended(self, run: Owner) -> None:
        """Note that a run's end is committed, or that a branch has ended, and roll back its open transaction."""
        for session in self._sessions.values():
            if run not in session.runs:
                continue
            session.runs.discard(run)
            if session.turn_of == run:
                session.end_statement()  # its task then sees that the run has ended
            elif session.in_transaction == run:
                session.turn_of = run
                session.calls += 1
                self._tasks.create_task(self._roll_back(session), name=f"roll back {session.job}")

    async def _try(self, user: SqlUser, run: Owner, statement: Statement) -> Answered:
        if not self._is_open:
            raise StoreClosed
        session = await self._session(user)
        session.calls += 1
        session.runs.add(run)
        session.has_state |= not statement.wants_rows
        try:
            await session.take_turn(run, self._patience_s)
            work = self._tasks.create_task(self._work(session, run, statement), name=f"SQL of {user.job}")
        except BaseException:
            session.calls -= 1
            raise
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            statement.unwanted = True
            if session.running is statement:
                session.end_statement()
            raise

    async def _work(self, session: Session, run: Owner, statement: Statement) -> Answered:
        """Execute a statement of the run whose turn it is.

        It outlives its caller, and never raises: that would end all other statements.
        """
        try:
            async with AsyncExitStack() as turns:
                if len(statement.sql) > LONG:
                    await turns.enter_async_context(self._long)
                await turns.enter_async_context(self._at_once)
                answered = await session.perform(statement)
                if answered.in_transaction and run not in session.runs:
                    await session.roll_back()
                    answered = structs.replace(answered, in_transaction=False)
            if not self._has_begun and not statement.wants_rows:
                self._has_begun = True
                await asyncio.to_thread(self._note_begun)
            session.in_transaction = run if answered.in_transaction else None
        except Exception as error:
            reason = str(error)
            if not isinstance(error, SpywebError):
                log.error("user_db.bug", exc_info=error)
                reason = f"failed inside spyweb ({type(error).__name__})"
            answered = Answered(reason=reason, is_forbidden=isinstance(error, NoAccess))
            if session.process is None:
                session.in_transaction = None
        await self._leave(session)
        return answered

    async def _roll_back(self, session: Session) -> None:
        await session.roll_back()
        session.in_transaction = None
        await self._leave(session)

    async def _leave(self, session: Session) -> None:
        session.calls -= 1
        session.used_at = self._clock.monotonic()
        session.has_state &= bool(session.runs)
        await session.leave_turn()

    # Connections

    async def _session(self, user: SqlUser) -> Session:
        """Return the user's session, made if there is none.  Raises StoreError."""
        gives_up_at = self._clock.monotonic() + self._patience_s
        while user not in self._sessions:
            if self._make_room():
                opening = replace(self._opening, sees_others=user.sees_others)
                self._sessions[user] = Session(user.job, opening, self._clock, self._spawner)
                if self._check is None:
                    self._check = self._clock.call_later(CHECK_S, self._close_idle)
            elif self._clock.monotonic() > gives_up_at:
                raise StoreError(f"too many jobs use SQL at once ({self._most_connections})")
            else:
                await self._clock.sleep(RETRY_S)
        return self._sessions[user]

    def _make_room(self) -> bool:
        """Close an idle connection if there are too many; return False when none is idle."""
        if len(self._sessions) < self._most_connections:
            return True
        idle = [session for session in self._sessions.values() if session.is_idle]
        if idle:
            self._close(min(idle, key=lambda session: session.used_at))
        return bool(idle)

    def _close(self, session: Session) -> None:
        del self._sessions[SqlUser(session.job, session.opening.sees_others)]
        self._tasks.create_task(session.close(), name=f"close SQL of {session.job}")

    def _close_idle(self) -> None:
        long_ago = self._clock.monotonic() - IDLE_S
        for session in list(self._sessions.values()):
            if session.is_idle and session.used_at < long_ago:
                self._close(session)
        self._check = self._clock.call_later(CHECK_S, self._close_idle) if self._sessions else None
