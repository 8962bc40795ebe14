"""The scripts' own SQL: one database file for all jobs, one connection for each job that uses it.

A connection executes one statement at a time, in a process of its own.  While a run, or one of its branches, has a
transaction open, the job's others wait; a write that meets another job's transaction waits too: on the event loop, for
a limited time, and nothing else waits for it.  The number of connections is limited: an idle one is closed when another
job needs one, or after a while.
"""

from __future__ import annotations

import asyncio
from asyncio import Lock, Semaphore, TaskGroup
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple, Self

import structlog
from msgspec import structs
from msgspec.structs import replace

from spyweb import descriptors, limits
from spyweb.clock import Clock, Handle
from spyweb.errors import NoAccess, SpywebError, StoreClosed, StoreError
from spyweb.model import JobId, Owner
from spyweb.store.user_sql.connection import Answered, Opening, Statement
from spyweb.store.user_sql.session import LOCKED, Session, SqlSpawner, time_limit

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

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._sessions)

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
        """Note that a run's end is committed, or that a branch has ended, and roll back what it left open."""
        for session in self._sessions.values():
            if run not in session.runs:
                continue
            session.runs.discard(run)
            if session.turn_of == run:
                session.end_statement()  # its task then sees that the run is gone
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
