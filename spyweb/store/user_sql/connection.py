"""A job's connection to the scripts' own database, and the execution of one statement on it.

Connections are used only in the process for the job's SQL (process.py).  A statement never waits for a lock: it answers
that it would have to.  It ends when the daemon says so, and returns no more rows than the job's VM has memory for.

Between the daemon and that process go frames over one socket: a 4-byte little-endian length and a msgpack array.  The
daemon sends a SqlSetup, then one SqlRequest at a time, and each is answered by one Answered.  The end of that socket
asks for an orderly end.  Over another socket goes the number of a request that is to be interrupted, 4 bytes; its end
asks for an end at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from spyweb import limits
from spyweb.confined.frames import framed
from spyweb.errors import NoAccess, SpywebError, StoreError
from spyweb.model import MIB, Durability, JobId
from spyweb.store.access import make_private
from spyweb.store.sqlite.damage import refuse_missing
from spyweb.store.sqlite.failures import BUSY_TIMEOUT_MS, IN_USE, primary_code
from spyweb.store.user_sql.views import Engine, Guard, make_views, spells_a_secret

Cell = bytes | int | float | None
Row = dict[str, Cell]
Parameter = str | bytes | int | float | None

LONGEST_S = 5.0  # of one statement
STEPS_BETWEEN_CHECKS = 10_000  # of SQLite's virtual machine: they take very little time
STATEMENTS_KEPT_PREPARED = 64  # of at most limits.SQL_KEPT bytes each
WAL_KEPT_BYTES = 64 << 20
ROW_COST, CELL_COST = 100, 50  # bytes in memory, beside the contents

LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 10 * MIB,  # bytes of a value, or a row
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: MIB,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 500,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 500,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 32_766,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,  # further ones
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
MOST_PARAMETERS = LIMITS[sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER]
INNOCENT = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError)  # what a statement may raise


class Statement(Struct, array_like=True, kw_only=True):
    """One SQL statement of a script."""

    sql: str
    parameters: Sequence[Any] = ()  # each a Parameter: msgspec knows no union of text and bytes
    wants_rows: bool
    largest: int  # bytes of all rows together
    longest_s: float = LONGEST_S
    unwanted: bool = False  # its run has ended
    only_reads: bool = False  # it fails where it would write

    @property
    def too_long(self) -> str:
        return f"interrupted: a statement may take {self.longest_s:g} s"


class Answered(Struct, frozen=True, array_like=True, kw_only=True):
    """The result of a statement, as the process for the job's SQL sends it."""

    columns: Sequence[str] = ()
    values: Sequence[Sequence[Cell]] = ()  # a row each
    changed: int = 0  # rows
    reason: str | None = None  # why it failed
    is_forbidden: bool = False  # it failed because this user may not open the file
    is_busy: bool = False  # another connection is writing: nothing has happened, and it may be tried again
    would_write: bool = False  # it failed because it was only to read
    in_transaction: bool = False  # one is open now
    cpu_s: float = 0.0  # processor time that it took
    pid: int = 0  # of the process that answers, in its first answer

    @property
    def rows(self) -> list[Row]:
        """Return each row as a dict by column name; a NULL is left out."""
        names = self.columns
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None} for row in self.values
        ]

    @property
    def error(self) -> SpywebError | None:
        if self.reason is None:
            return None
        return NoAccess(self.reason) if self.is_forbidden else StoreError(self.reason)


class UserConnection:
    """One job's connection, guarded and limited.  `is_unwanted`: the statement is to end, or not to begin."""

    def __init__(self, connection: sqlite3.Connection, guard: Guard, is_unwanted: Callable[[], bool]) -> None:
        self._connection = connection
        self._guard = guard
        self._is_unwanted = is_unwanted
        connection.set_authorizer(guard.authorize)
        connection.set_progress_handler(is_unwanted, STEPS_BETWEEN_CHECKS)

    def perform(self, statement: Statement) -> Answered:
        try:
            if statement.only_reads:  # the guard is not asked again about a statement that is prepared already
                self._set_query_only(True)
            try:
                answered = self._perform(statement)
            finally:
                if statement.only_reads:
                    self._set_query_only(False)
        except INNOCENT as error:
            answered = self._failed(error, statement)
        return structs.replace(answered, in_transaction=self._connection.in_transaction)

    def _perform(self, statement: Statement) -> Answered:
        if self._is_unwanted():
            return Answered(reason="the run has ended")
        if spells_a_secret(statement.sql):
            return Answered(reason="not authorized")
        before = self._connection.total_changes
        try:
            with closing(self._connection.execute(statement.sql, statement.parameters)) as cursor:
                columns = [column[0] for column in cursor.description or ()]
                values = list(_take(cursor, statement))
            changed = 0
            if self._connection.total_changes != before:  # otherwise changes() still counts an earlier statement's
                (changed,) = self._connection.execute("SELECT changes()").fetchone()
        finally:
            if len(statement.sql) > limits.SQL_KEPT:
                # The sqlite3 module has no other way to drop a long one, which may take far more memory than its text,
                # than to push every prepared statement out of the cache with short ones.
                for number in range(STATEMENTS_KEPT_PREPARED):
                    self._connection.execute(f"SELECT {number}").close()
        return Answered(columns=columns, values=values, changed=changed)

    def _set_query_only(self, value: bool) -> None:
        with self._guard.trusted():
            self._connection.execute(f"PRAGMA query_only = {int(value)}").close()

    def roll_back(self) -> Answered:
        """End a transaction that was left open, if there is one."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except INNOCENT as error:
            return Answered(reason=str(error), in_transaction=self._connection.in_transaction)
        return Answered()

    def _failed(self, error: Exception, statement: Statement) -> Answered:
        code = primary_code(error) if isinstance(error, sqlite3.Error) else None
        if code == sqlite3.SQLITE_INTERRUPT:
            reason = statement.too_long
        elif code == sqlite3.SQLITE_AUTH and self._guard.reason:
            reason, self._guard.reason = f"not authorized: {self._guard.reason}", ""
        else:
            reason = "out of memory: the statement needs too much" if isinstance(error, MemoryError) else str(error)
        # A transaction that has read data which was changed since can never write: waiting would not help.
        may_pass = getattr(error, "sqlite_errorname", "") != "SQLITE_BUSY_SNAPSHOT"
        would_write = statement.only_reads and code == sqlite3.SQLITE_READONLY
        return Answered(reason=reason, is_busy=code in IN_USE and may_pass, would_write=would_write)


def _take(cursor: sqlite3.Cursor, statement: Statement) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows, stepping through all even if none is wanted.  Raises ValueError when they are too large."""
    left = statement.largest
    for values in cursor:
        if statement.wants_rows:
            left -= ROW_COST
            for value in values:
                if value is not None:
                    left -= CELL_COST + (len(value) if type(value) is bytes else 0)
            if left < 0:
                raise ValueError(
                    f"the rows are larger than the memory limit of its VM ({statement.largest / MIB:g} MB)"
                )
            yield values


class Opening(Struct, frozen=True, kw_only=True):
    """The settings with which connections are opened."""

    path: Path
    engine: Engine | None
    durability: Durability
    sees_others: bool = True  # its views show what other jobs keep, too
    has_views: bool = True

    def connect(self, job: JobId, guard: Guard, now_ms: Callable[[], int]) -> sqlite3.Connection:
        """Open the database, made if it is absent.  Raises sqlite3.Error, OSError, StoreIncomplete."""
        make_private(self.path.parent)
        refuse_missing(self.path)
        connection = sqlite3.connect(
            self.path.absolute().as_uri(),
            uri=True,  # for ATTACH too: not every build of SQLite takes a URI there otherwise
            timeout=BUSY_TIMEOUT_MS / 1000,
            isolation_level=None,
            cached_statements=STATEMENTS_KEPT_PREPARED,
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self.durability.value}")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
            connection.execute("PRAGMA foreign_keys = ON")
            # A file that was tampered with must not run functions through its schema.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA cache_size = -1000")  # kB: there may be many connections
            make_views(connection, guard, self.engine, job, now_ms, sees_others=self.sees_others)
            guard.has_views = self.has_views
            connection.text_factory = bytes  # a script gets back what it stored, valid text or not
            for limit, value in LIMITS.items():
                connection.setlimit(limit, value)
            connection.execute("PRAGMA busy_timeout = 0")  # the daemon's event loop waits, and tries again
        except BaseException:
            connection.close()
            raise
        return connection


class SqlSetup(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Open the connection of this job."""

    job: JobId
    opening: Opening


class SqlRequest(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Execute one statement, or without one roll back a transaction that was left open."""

    number: int
    now_ms: int  # as the daemon's clock shows it
    statement: Statement | None


_encoder = msgspec.msgpack.Encoder(enc_hook=str)  # of the paths
setup_decoder = msgspec.msgpack.Decoder(SqlSetup, dec_hook=lambda kind, text: kind(text))
request_decoder = msgspec.msgpack.Decoder(SqlRequest)
decode_answer = msgspec.msgpack.Decoder(Answered).decode


def frame(message: msgspec.Struct) -> bytes:
    """Return the message with its length in front.  Raises OverflowError beyond 4 GB."""
    return framed(_encoder.encode(message))
