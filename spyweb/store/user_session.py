"""One job's connection to the scripts' database: its thread, and whose turn it is."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from asyncio import Condition
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from spyweb.clock import Clock
from spyweb.errors import StoreError
from spyweb.model import JobId, RunId
from spyweb.store.access import explain
from spyweb.store.batch import Connection
from spyweb.store.failures import translate
from spyweb.store.original import Original
from spyweb.store.user_connection import Answered, Opening, Statement, UserConnection
from spyweb.store.user_guard import Guard
from spyweb.store.user_views import FUNCTIONS

LOCKED = "database is locked"
BEHIND, LOWEST = 5, 19  # levels of niceness: a third of the weight


class LooseConnection(Connection):
    """One whose thread may stay stuck in a statement without keeping the process from its end."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect)
        self._thread.daemon = True
        self.is_abandoned = False  # the process ends before its statement does

    def __del__(self) -> None:
        if not self.is_abandoned:
            super().__del__()  # type: ignore[no-untyped-call]  # complains that it was not closed

    def interrupt_now(self) -> None:
        """From any thread: what it is carrying out fails."""
        self._conn.interrupt()


class Session:
    def __init__(self, job: JobId, opening: Opening) -> None:
        self.job = job
        self._opening = opening
        self._changed = Condition()
        self._connection: LooseConnection | None = None
        self._user: UserConnection | None = None
        self._original: Original | None = None
        self.interest = 0  # calls that have it or wait for it
        self.living: set[RunId] = set()  # runs that have used it and not ended
        self.owner: RunId | None = None  # whose transaction is open
        self.running: Statement | None = None
        self.runner: RunId | None = None  # who has the turn
        self.used_at = 0.0
        self.keeps_something = False  # a living run may still ask for: last_insert_rowid(), a temporary table
        self.is_gone = False  # given up with a statement that does not end

    @property
    def is_idle(self) -> bool:
        """Whether it can be closed without anybody noticing."""
        return not self.interest and self.owner is None and not (self.living and self.keeps_something)

    def is_free_for(self, run: RunId) -> bool:
        return self.is_gone or (self.runner is None and self.owner in (None, run))

    async def take_turn(self, run: RunId, patience_s: float) -> None:
        """Wait for the job's other runs; for one that has a transaction open only so long.  Raises StoreError."""
        async with self._changed:
            while not self.is_free_for(run):
                try:
                    async with asyncio.timeout(patience_s):
                        await self._changed.wait_for(lambda: self.is_free_for(run))
                except TimeoutError:
                    if self.owner not in (None, run):
                        raise StoreError(LOCKED) from None
            if self.is_gone:
                raise StoreError("an earlier statement of this job has not ended yet")
            self.runner = run

    async def leave_turn(self) -> None:
        async with self._changed:
            self.runner = None
            self._changed.notify_all()

    async def perform(self, statement: Statement) -> Answered:
        """With the turn taken.  Raises StoreError, NoAccess."""
        connection, user = await self._opened()
        self.running = statement
        time_is_up = self._opening.clock.call_later(statement.longest_s, self._interrupt)
        try:
            return await connection.run(_perform, user, statement)
        finally:
            time_is_up.cancel()
            self.running = None

    def end_statement(self) -> None:
        """Whoever asked for it is gone."""
        if self.running:
            self.running.unwanted.set()
            self._interrupt()

    def _interrupt(self) -> None:
        """SQLite hears of it sooner than it asks by itself; but not while it is between two steps of ours."""
        if self._connection is not None:
            self._connection.interrupt_now()

    async def roll_back(self) -> None:
        """End a transaction that was left open, if there is one."""
        if self._connection is not None and self._user is not None:
            await self._connection.run(_roll_back, self._user)

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(sqlite3.Error):
                await connection.close()

    async def bury(self) -> None:
        """Close it as soon as its statement ends; when cancelled, never."""
        if self._connection is not None:
            self._connection.is_abandoned = True
            await self._connection.run(_nothing)
            self._connection.is_abandoned = False
            await self.close()

    async def _opened(self) -> tuple[LooseConnection, UserConnection]:
        await self._leave_what_is_gone()
        if self._connection is None or self._user is None:
            guard, path = Guard(FUNCTIONS), self._opening.path
            try:
                self._connection = await LooseConnection.open(partial(_connect, self._opening, self.job, guard))
                self._original = Original(path)
            except sqlite3.Error as error:
                raise translate(error, path) from error
            except OSError as error:
                raise explain(error, path) from error
            self._user = await self._connection.run(_guarded, guard, self._opening.clock)
        return self._connection, self._user

    async def _leave_what_is_gone(self) -> None:
        """A file that was removed or replaced: what is written to it would be lost."""
        trouble = self._original.trouble() if self._original else None
        if trouble and self.owner is not None:
            raise trouble  # its transaction is in that file
        if trouble:
            self._original = None
            await self.close()


def _connect(opening: Opening, job: JobId, guard: Guard) -> sqlite3.Connection:
    give_way()
    return opening.connect(job, guard)


def give_way() -> None:
    """This thread, from now on: its statements may compute for seconds, each job's on one of its own, and beside eight
    of them the loop would wait for a processor.  Linux only: elsewhere a priority is the whole process's."""
    if sys.platform == "linux":
        with suppress(OSError):  # then it is as it was
            os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + BEHIND, LOWEST))


def _guarded(connection: sqlite3.Connection, guard: Guard, clock: Clock) -> UserConnection:
    return UserConnection(connection, guard, clock)


def _nothing(_: sqlite3.Connection) -> None:
    """What waits for its turn on the thread."""


def _perform(_: sqlite3.Connection, user: UserConnection, statement: Statement) -> Answered:
    return user.perform(statement)


def _roll_back(_: sqlite3.Connection, user: UserConnection) -> None:
    user.roll_back()
