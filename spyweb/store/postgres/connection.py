"""A PostgreSQL connection in the place of sqlite3's, for the functions of spyweb/store/sqlite.

Those take a `sqlite3.Connection`, of which they use what is here: `execute`, `executemany`, `in_transaction`,
`total_changes`, and of a result rows, `rowcount` and `lastrowid`.  A PgConnection is given to them by `as_sqlite`.
It is used on one thread.  An error is a ForeignError, which is a `sqlite3.Error`; after one there is no transaction
any more, as after those with which SQLite rolls back.

A transaction that writes first locks the row of its node in `lane`, unless it is a command's.  So those of a node never
overlap, also on two connections, and a node that was declared dead writes nothing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import psycopg

from spyweb.errors import StoreError, StoreFenced
from spyweb.store.postgres.server import QUESTION_S, PgServer, without_nul
from spyweb.store.postgres.texts import Translated, translate
from spyweb.store.sqlite import entries
from spyweb.store.sqlite.failures import ForeignError

CONFLICTS = ("40001", "40P01", "23505")  # another node has written the same rows: done again, it finds what is there
# The server has closed the session, or it prepared statements for a schema that a newer node has changed since.
ENDED = ("08", "57P", "25P03", "25P04", "0A000")
MOST_CUTS = 3  # in a row, after each of which a batch is done again
OVER = "the other nodes have declared this one dead, or it has left"
OTHER_KEY = "its values were encrypted with another key meanwhile: start again"
RETRY_S = 0.1  # between two attempts to connect
XID = 0xFFFF_FFFF  # of a transaction's number, what a row keeps
ROWS_AT_ONCE = 64  # of a stream: each may have a large value
WRITE, READ, ENTRIES = "REPEATABLE READ", "REPEATABLE READ READ ONLY", "READ COMMITTED"

LOCK_AND_READ = f"""
    SELECT namespace, key, {entries.COLUMNS} FROM entry
    WHERE (namespace, key) IN (SELECT * FROM unnest(CAST(? AS text[]), CAST(? AS bytea[])))
    ORDER BY namespace, key FOR UPDATE
"""
WRITE_ALL = """
    UPDATE entry SET type = n.type, value = n.value, expires_ms = n.expires_ms, version = n.version,
        created_ms = n.created_ms, updated_ms = n.updated_ms
    FROM unnest(CAST(? AS text[]), CAST(? AS bytea[]), CAST(? AS bigint[]), CAST(? AS bigint[]), CAST(? AS bigint[]),
        CAST(? AS bigint[]), CAST(? AS bigint[])) AS n (type, value, expires_ms, version, created_ms, updated_ms, rowid)
    WHERE entry.rowid = n.rowid
"""

# Sent before the next one whose answer is needed.
UNANSWERED = {entries.PUT, entries.DELETE, entries.DELETE_EXPIRED, entries.ARCHIVE, entries.FORGET_BEYOND}
BY_PLACE = {entries.PUT, entries.DELETE, entries.DELETE_EXPIRED}


Place = tuple[str, bytes]
Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Any]]


class Result:
    """The rows of a statement; all are here."""

    def __init__(self, rows: Iterable[Row] = (), rowcount: int = 0, lastrowid: int | None = None) -> None:
        self._rows = iter(rows)
        self.rowcount, self.lastrowid = rowcount, lastrowid

    def fetchone(self) -> Row | None:
        return next(self._rows, None)

    def fetchall(self) -> list[Row]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def close(self) -> None:
        self._rows = iter(())


class ReadAhead:
    """The entries that a batch writes, read and locked by its first statement; what changes is written by one more."""

    def __init__(self, places: Collection[Place], found: Sequence[Row]) -> None:
        self._rows: dict[Place, Row | None] = dict.fromkeys(places)
        self._places: dict[int, Place] = {}
        self._changed: dict[int, Row] = {}
        for namespace, key, *row in found:
            self._rows[namespace, key] = tuple(row)
            self._places[row[-1]] = (namespace, key)

    def answer(self, sql: str, parameters: Row) -> Result | None:
        """Answer a statement about one of them; None: PostgreSQL does."""
        if sql == entries.FIND and parameters in self._rows:
            row = self._rows[parameters]
            return Result([] if row is None else [row], 1)
        if sql == entries.UPDATE and parameters[-1] in self._places:
            rowid = parameters[-1]
            self._rows[self._places[rowid]] = self._changed[rowid] = tuple(parameters)
            return Result(rowcount=1)
        if sql in BY_PLACE and (row := self._rows.pop(parameters[:2], None)):
            del self._places[row[-1]]
            self._changed.pop(row[-1], None)
        return None

    def take_changes(self) -> list[Statement]:
        """Return the statement that writes what has changed, if anything has."""
        changed, self._changed = self._changed, {}
        columns = [list(column) for column in zip(*(changed[rowid] for rowid in sorted(changed)), strict=True)]
        return [(translate(WRITE_ALL).text, columns)] if columns else []


class PgConnection:
    """A connection that is made again when it is lost."""

    def __init__(self, server: PgServer, *, statement_s: float = QUESTION_S, is_relaxed: bool = False) -> None:
        """Connect.  `is_relaxed`: entries are answered before they are on the disk."""
        self.node = 0  # whose lane is locked; 0: a command's, or one that has not joined yet
        self.same_key = ""  # where there is no lane: the condition that values have the key that is known here
        self.total_changes = self._changes_before = 0  # statements
        self.was_conflict = False  # the transaction is to be done again
        self._server = server
        self._statement_s = statement_s
        self._is_relaxed = is_relaxed
        self._is_over = ""  # why this incarnation of the node writes nothing any more
        self._is_away = False  # it could not be reached for a lease
        self._cuts = 0
        self._level = ""  # of the transaction; empty: there is none
        self._xact = 0
        self._ahead: ReadAhead | None = None
        self._later: list[Statement] = []
        self._timeline = ""  # of the database; another one means that it failed over, or was restored
        self._connect(0)

    def as_sqlite(self) -> sqlite3.Connection:
        return cast("sqlite3.Connection", self)

    @property
    def in_transaction(self) -> bool:
        return bool(self._level)

    def execute(self, sql: str, parameters: Any = ()) -> Result:
        if sql in CONTROL:
            CONTROL[sql](self)
            return Result()
        # A row that another node has made meanwhile was not there to be locked at the beginning.
        translated = translate(f"{entries.FIND} FOR UPDATE" if self._level == ENTRIES and sql == entries.FIND else sql)
        if not self._level:
            self._be_outside(translated)
        self.total_changes += translated.writes
        if self._ahead and (answer := self._from_ahead(self._ahead, sql, parameters)):
            return answer
        values = storable(translated, parameters)
        if sql in UNANSWERED:
            self._later.append((translated.text, values))
            return Result()
        self._send_later()
        with self._in_words():
            return result_of(translated, self._cursor.execute(translated.text, values))

    def executemany(self, sql: str, rows: Iterable[Any]) -> Result:
        return Result(rowcount=sum(result.rowcount for result in self.each(sql, rows)))

    def each(self, sql: str, rows: Iterable[Any]) -> list[Result]:
        """Execute a statement for each row: all but the last in one round trip.

        After that PostgreSQL would not end a transaction that stands still: psycopg's last word in a pipeline is a
        Flush, which turns off `idle_in_transaction_session_timeout` until the next statement.
        """
        asked = list(rows)
        if self._ahead or not self._level or len(asked) < 3:
            return [self.execute(sql, row) for row in asked]
        translated = translate(sql)
        first = [storable(translated, row) for row in asked[:-1]]
        self._send_later()
        with self._in_words():
            self._cursor.executemany(translated.text, first, returning=True)
            results = [result_of(translated, cursor) for cursor in self._cursor.results()]
        return [*results, self.execute(sql, asked[-1])]

    def stream(self, sql: str, parameters: Any) -> Result | Generator[Row]:
        """Ask for rows that may not fit into memory together: a part at a time, in a transaction of its own."""
        return self.execute(sql, parameters) if self._level else self._stream(translate(sql), parameters)

    def _stream(self, translated: Translated, parameters: Any) -> Generator[Row]:
        self._begin(READ)
        try:
            with self._in_words(), psycopg.RawServerCursor(self._session, "stream") as cursor:
                cursor.itersize = ROWS_AT_ONCE
                yield from cursor.execute(translated.text, storable(translated, parameters))
        finally:
            self._roll_back()

    def begin_values(self, places: Collection[Place]) -> None:
        """Begin a batch of writes to these entries alone: their rows are locked and read by one statement, in order.

        READ COMMITTED: where it has waited for another node, it reads what that has written, and need not begin anew.
        """
        self._begin(ENTRIES)
        names = [without_nul(namespace.encode(errors="replace").decode()) for namespace, _ in places]
        columns = names, [key for _, key in places]
        self._ahead = ReadAhead(places, self.execute(LOCK_AND_READ, columns).fetchall())

    def close(self) -> None:
        self._session.close()

    def _be_outside(self, translated: Translated) -> None:
        """Make ready for a statement outside a transaction, which only reads."""
        if translated.writes:
            raise ForeignError(StoreError(f"{self._server.name}: a write outside a transaction"))
        self._cuts, self.was_conflict = 0, False
        self._come_back()

    def _begin(self, level: str) -> None:
        if self._is_over and level != READ:
            raise self._fenced(self._is_over)
        self._roll_back()
        self.was_conflict = False
        self._come_back()
        self._level = level
        begin = f"BEGIN ISOLATION LEVEL {level}"
        if level == READ:
            self._tell(begin)
            return
        relaxed = "SET LOCAL synchronous_commit = off; " if self._is_relaxed and level == ENTRIES else ""
        fence = f"{self._lane()} FOR UPDATE" if self.node else self.same_key
        # Who encrypts with another key locks `seal` first; with its lock, this sees what that has committed.
        lock = "" if self.node else "LOCK TABLE seal IN ROW SHARE MODE; "
        found = self._tell(f"{begin}; {relaxed}{lock}SELECT pg_current_xact_id() {fence}")
        if not found:
            self._roll_back()
            raise self._fenced(OVER if self.node else OTHER_KEY)
        self._xact = int(found[0])

    def _lane(self) -> str:
        return f"FROM lane WHERE node = {self.node:d} AND state IN ('a', 'd')"

    def _commit(self) -> None:
        if self._ahead:
            self._later += self._ahead.take_changes()
        xact = self._xact
        try:
            self._send_later("COMMIT")
        except ForeignError:
            if not self._session.closed or not xact or not self._was_committed(xact):
                raise
        self._forget_transaction()
        self._cuts = 0

    def _was_committed(self, xact: int) -> bool:
        """Find out whether a transaction was committed whose COMMIT was not answered.

        Its node's lane has the number of the last transaction that has locked it.  An older one: a crash of PostgreSQL
        has undone even the lock, and may have given the number away again.  Any other one, or no answer within a
        lease: what stands is unknown, and this incarnation is over.
        """
        until = time.monotonic() + self._server.lease_s
        status = f"CASE WHEN xmax = '{xact & XID}' THEN pg_xact_status('{xact:d}') END"  # fails for one yet to come
        state: str | None = "in progress"
        while self.node and state == "in progress" and time.monotonic() < until:
            try:
                if self._session.closed:
                    self._connect(until)
                last, state = self._tell(f"SELECT xmax, {status} {self._lane()}") or (0, None)
                is_older = int(last) and (xact - int(last)) & XID < 1 << 31
                if is_older and state != "in progress":
                    self.was_conflict = state != "committed"  # done again
                    return not self.was_conflict
            except ForeignError as error:
                if isinstance(error.told, StoreFenced):
                    raise
            time.sleep(RETRY_S)
        raise self._fenced("the connection was lost while it stored, and whether that is stored is unknown")

    def _roll_back(self) -> None:
        if self._level:
            with suppress(psycopg.Error):  # a lost connection, which has rolled back
                self._cursor.execute("ROLLBACK", prepare=False)
        self._forget_transaction()

    def _begin_op(self) -> None:
        self._changes_before = self.total_changes

    def _fail_op(self) -> None:
        """Instead of a savepoint an op, which costs two round trips: if it has written, each is done again alone."""
        if self.total_changes != self._changes_before:
            raise ForeignError(StoreError("an op has failed: each is done alone"))

    def _forget_transaction(self) -> None:
        self._level, self._xact, self._ahead, self._later = "", 0, None, []

    def _send_later(self, last: str = "") -> None:
        """Send the statements that wait, and this one, in one round trip."""
        later, self._later = self._later, []
        if later:
            with self._in_words(), self._session.pipeline():
                for text, values in later:
                    self._cursor.execute(text, values)
                if last:
                    self._session.execute(last)
        elif last:
            self._tell(last)

    def _tell(self, text: str) -> Row | None:
        """Execute statements without parameters; return the first row of the last."""
        with self._in_words():
            *_, last = self._cursor.execute(text, prepare=False).results()
            return last.fetchone() if last.description else None

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """End the transaction at an error, and raise that in words."""
        try:
            yield
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if state.startswith(ENDED):
                self._session.close()
            self._cuts += self._session.closed
            self._roll_back()
            self.was_conflict = state in CONFLICTS or (self._session.closed and self._cuts < MOST_CUTS)
            raise ForeignError(self._server.explain(error)) from error
        except UnicodeError as error:  # a value that it can't hold, maybe of an op that seems done
            self._roll_back()
            raise ForeignError(StoreError(f"{self._server.name}: {error}")) from error

    def _fenced(self, why: str) -> ForeignError:
        """Let this incarnation of the node write nothing any more."""
        self.was_conflict = False
        if not self.node:
            return ForeignError(StoreError(f"{self._server.name}: {why}"))
        self._is_over = why
        return ForeignError(StoreFenced(f"{self._server.name}: {why}"))

    def _come_back(self) -> None:
        if self._session.closed:
            self._connect(time.monotonic() + self._server.lease_s)

    def _connect(self, until: float) -> None:
        """Connect, trying until then: it may be starting.  Once that has failed, each call tries once."""
        while True:
            try:
                self._session = self._server.connect(statement_s=self._statement_s)
                break
            except psycopg.Error as error:
                if self._is_away or time.monotonic() > until:
                    self._is_away = True
                    raise ForeignError(self._server.explain(error)) from error
                time.sleep(RETRY_S)
        self._is_away = False
        self._cursor = self._session.cursor()
        before, self._timeline = self._timeline, self._session.timeline
        if self.node and before not in ("", self._timeline):
            raise self._fenced("the database has failed over to another server, or was restored")

    def _from_ahead(self, ahead: ReadAhead, sql: str, parameters: Any) -> Result | None:
        """Answer from what was read ahead, or write what has changed for a statement that needs it."""
        answer = ahead.answer(sql, parameters)
        if not answer and "entry" in sql and sql not in {entries.FIND, entries.UPDATE} | BY_PLACE:  # of other entries
            self._later += ahead.take_changes()
            self._ahead = None
        return answer


def result_of(translated: Translated, cursor: psycopg.Cursor[Row]) -> Result:
    rows = cursor.fetchall() if cursor.description else []
    count = max(cursor.rowcount, 0)
    return Result((), count, rows[-1][0] if rows else None) if translated.gives_id else Result(rows, count)


def storable(translated: Translated, parameters: Any) -> list[Any]:
    """Return the values of the parameters in their order, as PostgreSQL can hold them."""
    values = [parameters[name] for name in translated.names] if translated.names else parameters
    return [without_nul(value) if isinstance(value, str) else value for value in values]


CONTROL: Mapping[str, Any] = {
    "BEGIN": lambda connection: connection._begin(READ),
    "BEGIN IMMEDIATE": lambda connection: connection._begin(WRITE),
    "COMMIT": PgConnection._commit,
    "ROLLBACK": PgConnection._roll_back,
    "SAVEPOINT op": PgConnection._begin_op,
    "RELEASE op": lambda connection: None,
    "ROLLBACK TO op": PgConnection._fail_op,
}
