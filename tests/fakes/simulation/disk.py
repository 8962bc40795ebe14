"""The disk under a daemon: statements and syncs that fail, and the death of the process in the middle of one.

The database is a real one, in a file.  What a dead process leaves is a copy of its files, with no more of the log than
it had written by then: the next daemon opens that.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from spyweb.clock import Clock
from spyweb.settings.sections import MARKER
from spyweb.store.sqlite.damage import FRAME_HEADER, LOG_HEADER, FileIdentity, wal_of
from spyweb.store.sqlite.migrate import create
from tests.fakes.simulation.invariants import WATCH_ALONE

NAME = "spyweb.db"
FAILS, FULL, BUSY = "disk I/O error", "database or disk is full", "database is locked"
CODES = {FAILS: sqlite3.SQLITE_IOERR, FULL: sqlite3.SQLITE_FULL, BUSY: sqlite3.SQLITE_BUSY}
DIES = "the process dies"
# At the Nth statement of the writer, before it, or at its Nth commit: before it, in it, after it.
HOW = ("statement fails", "statement full", "statement dies", "commit fails", "commit dies", "sync dies", "answer dies")


class DiedError(BaseException):
    """The process has died: nothing of it goes on."""


@cache
def template() -> bytes:
    """Return a new database that notes what the judges look at."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create(connection, 0)
        connection.executescript(WATCH_ALONE)
        return connection.serialize()


class Session:
    """A connection as the functions of the store see it."""

    def __init__(self, disk: Disk, raw: sqlite3.Connection, is_writer: bool) -> None:
        self._disk, self.raw, self.is_writer = disk, raw, is_writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        return self._disk.carry_out(self, sql, partial(self.raw.execute, sql, parameters))

    def executemany(self, sql: str, rows: Any) -> Any:
        return self._disk.carry_out(self, sql, partial(self.raw.executemany, sql, rows))


class Disk:
    """The files of one daemon after the other."""

    def __init__(self, root: Path, dice: Random, latencies_s: Sequence[float]) -> None:
        self._root, self._dice, self._usual_s = root, dice, latencies_s
        self.lives = self.commits = self._left = 0
        self._how = ""
        self.latency_s = latencies_s
        self.is_busy = False
        self.open: list[sqlite3.Connection] = []
        self.on_commit: Callable[[sqlite3.Connection], None] = lambda _raw: None
        self.on_death: Callable[[str], None] = lambda _what: None
        self.path.parent.mkdir()
        self.path.write_bytes(template())

    @property
    def path(self) -> Path:
        return self._root / str(self.lives) / NAME

    def arm(self, how: str, number: int) -> None:
        """Have the Nth statement or commit of the writer from now on go wrong in one of these ways."""
        self._how, self._left = how, number

    def mend(self) -> None:
        self._how, self.latency_s, self.is_busy = "", self._usual_s, False

    async def pause(self, clock: Clock) -> None:
        await clock.sleep(self._dice.choice(self.latency_s))

    def carry_out(self, session: Session, sql: str, work: Callable[[], Any]) -> Any:
        if self.is_busy and sql == "BEGIN IMMEDIATE":
            fail(BUSY)
        how = self._due(session, sql)
        if how.endswith(("fails", "full")):
            if how != "statement fails":
                session.raw.rollback()
            fail(FULL if how.endswith("full") else FAILS)
        if how in ("statement dies", "commit dies"):
            self.die(f"{DIES} before {sql.split(maxsplit=2)[:2]}")
        if how == "sync dies":
            before, pages = self.path.read_bytes(), self._pages()  # what a commit checkpoints has been synced
            work()
            self.die(f"{DIES} in a commit", before, range(pages, self._pages()))
        result = work()
        if how == "answer dies":
            self.die(f"{DIES} after a commit")
        if sql == "COMMIT" and session.is_writer:
            self.commits += 1
            self.on_commit(session.raw)
        return result

    def _due(self, session: Session, sql: str) -> str:
        """Return what goes wrong with this statement."""
        if not self._how or not session.is_writer or (sql != "COMMIT" and not self._how.startswith("statement")):
            return ""
        self._left -= 1
        if self._left > 0:
            return ""
        how, self._how = self._how, ""
        return how

    def _pages(self) -> int:
        """Return how many pages the log has."""
        with closing(FileIdentity(self.path, reads_index=True)) as files:
            return files.pages()

    def die(self, what: str, database: bytes = b"", unsynced: range = range(0)) -> NoReturn:
        self.leave(database, unsynced)
        self.on_death(what)
        raise DiedError

    def leave(self, database: bytes = b"", unsynced: range = range(0)) -> None:
        """Leave the files to the next daemon: a database as it was, and of unsynced pages of the log only a part."""
        left = self.path
        size = self.open[0].execute("PRAGMA page_size").fetchone()[0] + FRAME_HEADER if unsynced else 0
        self.lives += 1
        self.path.parent.mkdir()
        for file in (left, wal_of(left), left.with_name(MARKER)):
            if file.exists():
                shutil.copyfile(file, self.path.with_name(file.name))
        if database:
            self.path.write_bytes(database)
        if unsynced:
            end = LOG_HEADER + self._dice.randint(unsynced.start * size, unsynced.stop * size)
            with wal_of(self.path).open("r+b") as log:
                log.truncate(end)
        for raw in self.open:
            raw.close()
        self.open.clear()
        shutil.rmtree(left.parent)

    async def connect(self, clock: Clock, connect: Callable[[], sqlite3.Connection]) -> DiskConnection:
        await self.pause(clock)
        raw = connect()
        session = Session(self, raw, is_writer=not self.open)
        self.open.append(raw)
        return DiskConnection(self, session, clock)


def fail(reason: str) -> NoReturn:
    error = sqlite3.OperationalError(reason)
    error.sqlite_errorcode = CODES[reason]
    raise error


class DiskConnection:
    """A connection, without a thread: what is asked of it takes its virtual time."""

    def __init__(self, disk: Disk, session: Session, clock: Clock) -> None:
        self._disk, self._session, self._clock, self._life = disk, session, clock, disk.lives
        self._turn = asyncio.Lock()

    @property
    def total_changes(self) -> int:
        return self._session.raw.total_changes if self._life == self._disk.lives else 0

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async with self._turn:
            await self._disk.pause(self._clock)  # for ever, once the process is dead
            try:
                result = function(self._session, *arguments)
            except DiedError:
                return await asyncio.get_running_loop().create_future()
            await self._disk.pause(self._clock)
            return result

    async def close(self) -> None:
        if self._session.raw in self._disk.open:
            self._disk.open.remove(self._session.raw)
            self._session.raw.close()
