"""Move all that is stored to another database: from SQLite to PostgreSQL, back, or between two schemas.

The target gets it in one transaction, in which it is read again and compared.  Until the source says that it was moved,
the target says that it is unfinished.  So wherever it is cut, not both can be used, and another move goes on with it.
Rows are compared as PostgreSQL has them: there values are bytes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import StoreError
from spyweb.model import Durability
from spyweb.store.encoding import Column
from spyweb.store.encryption import codec_for, from_bytes, to_bytes
from spyweb.store.lock import hold_database
from spyweb.store.postgres.migrate import bring_up_to_date, refuse_other
from spyweb.store.postgres.server import PgServer, PgSession, without_nul
from spyweb.store.postgres.store import translating
from spyweb.store.sqlite.damage import has_table, size_of
from spyweb.store.sqlite.failures import opening
from spyweb.store.sqlite.migrate import MOVED, create, load_migrations, refuse_newer, refuse_older
from spyweb.store.sqlite.store import connect, refuse_unfit, set_up_writing
from spyweb.store.sqlite.vault import VALUES

UNFINISHED = "an unfinished copy of "
LEFT_OUT = {"migration", "last_commit"}  # each database has its own
AT_ONCE = 50  # rows that a read brings: one may have megabytes
LOCKED_S = 10  # how long the end of others' transactions is waited for
SLICE = 1000  # rows, after each of which the progress is shown
LIVING = """
    SELECT name FROM node JOIN lane ON lane.node = node.id JOIN heart ON heart.node = node.id
    WHERE state IN ('a', 'd') AND beat > clock_timestamp() - lease_ms * interval '1 ms' ORDER BY name
"""

Row = Sequence[Any]
Layout = Mapping[str, tuple[str, ...]]  # the columns of each table
Progress = Callable[[int], None]


class MovedTable(Struct, frozen=True, kw_only=True):
    """The rows of a table; the digest is the same whatever their order."""

    table: str
    rows: int
    digest: str


class RowCount:
    def __init__(self, progress: Progress) -> None:
        self.rows = 0
        self._sum = 0
        self._progress = progress

    def count(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, and count them."""
        for row in rows:
            self._sum += int.from_bytes(blake2b(msgspec.msgpack.encode(row), digest_size=8).digest(), "big")
            self.rows += 1
            if not self.rows % SLICE:
                self._progress(SLICE)
            yield row
        self._progress(self.rows % SLICE)

    def of(self, table: str) -> MovedTable:
        return MovedTable(table=table, rows=self.rows, digest=f"{self._sum % (1 << 64):016x}")


def move(
    source: AbstractContextManager[Side], target: AbstractContextManager[Side], progress: Progress
) -> list[MovedTable]:
    """Move everything, and return what.  Raises StoreError where either can't be used, or they differ at the end."""
    with source as before, target as after:
        left = f"everything was moved to {after.name}: set [store] url"
        unfinished = f"{UNFINISHED}{before.name}: `spyweb store move` from there goes on with it"
        before.is_sealed = after.is_sealed = bool(before.ask("SELECT 1 FROM seal"))
        if (note_of(before), note_of(after)) == (left, unfinished):  # it was cut before its last step
            moved = read_all(after, progress)
        else:
            make_room(before, after)
            moved = copy(before, after, progress)
            say(after, unfinished)
            after.commit()
            say(before, left)
            before.commit()
        after.ask(f"DROP TABLE {MOVED}")
        after.commit()
    return moved


def make_room(before: Side, after: Side) -> None:
    """Remove what an interrupted move left.  Raises StoreError where the target has anything else."""
    if note := note_of(before):
        raise StoreError(f"{before.name}: {note}")
    note = note_of(after)
    if note and not note.startswith(UNFINISHED):
        raise StoreError(f"{after.name}: {note}")
    for table in layout():
        if note:
            after.ask(f'DELETE FROM "{table}"')
        elif after.ask(f'SELECT 1 FROM "{table}" LIMIT 1'):
            raise StoreError(
                f"{after.name}: {table} has rows: expected a database or [store] schema with nothing in it"
            )


def copy(before: Side, after: Side, progress: Progress) -> list[MovedTable]:
    """Copy everything, and compare."""
    copied: list[MovedTable] = []
    for table in layout():
        tally = RowCount(progress)
        after.write(table, tally.count(before.rows(table)))
        copied.append(tally.of(table))
    after.go_on_after(before.last_ids())
    for each, found in zip(copied, read_all(after, progress), strict=True):
        if each != found:
            raise StoreError(f"{after.name}: {each.table} is not what {before.name} has; nothing was moved")
    return copied


def read_all(side: Side, progress: Progress) -> list[MovedTable]:
    found: list[MovedTable] = []
    for table in layout():
        tally = RowCount(progress)
        for _ in tally.count(side.rows(table)):
            pass
        found.append(tally.of(table))
    return found


def note_of(side: Side) -> str:
    """Return why nobody may use it; empty: anybody may."""
    has_note = side.ask(f"SELECT 1 FROM sqlite_master WHERE name = '{MOVED}'")
    found = side.ask(f"SELECT text FROM {MOVED}") if has_note else None
    return str(found[0]) if found else ""


def say(side: Side, text: str) -> None:
    side.ask(f"CREATE TABLE IF NOT EXISTS {MOVED} (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    side.ask(f"DELETE FROM {MOVED}")
    side.ask("INSERT INTO {} VALUES (1, '{}')".format(MOVED, text.replace("'", "''")))


def layout() -> Layout:
    """Return the tables of both engines."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create(connection, 0)
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        names = [name for (name,) in tables if name not in LEFT_OUT and not name.startswith("sqlite_")]
        return {name: tuple(row[1] for row in connection.execute(f"PRAGMA table_info({name})")) for name in names}


@contextmanager
def sqlite_side(path: Path, *, key: bytes | None, clock: Clock, is_source: bool) -> Iterator[Side]:
    """Open a SQLite database, made where it is absent if it is the target."""
    known = load_migrations()
    with opening(path), hold_database(path, clock=clock):
        if is_source:
            refuse_unfit(path, codec_for(key), Durability.FULL, None)
        with closing(connect(path)) as connection:
            set_up_writing(connection, Durability.FULL)
            if size_of(path) and has_table(connection, "migration"):
                refuse_newer(connection, path, known)
                refuse_older(connection, path, known)
            else:
                create(connection, clock.now_ms())
            connection.execute("BEGIN IMMEDIATE")
            yield SqliteSide(path, connection)


@contextmanager
def postgres_side(server: PgServer, *, clock: Clock, is_source: bool) -> Iterator[Side]:
    """Open a schema, made where it is absent if it is the target; nobody writes to it, and no node joins, meanwhile."""
    known = load_migrations()
    with translating(server), closing(server.connect(statement_s=0)) as session:
        server.refuse_unfit(session)
        if is_source:
            refuse_other(server, session, known)
        else:
            bring_up_to_date(server, session, known, clock.now_ms())
        side = PgSide(server, session)
        side.begin()
        yield side


class SqliteSide:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.name = str(path)
        self.is_sealed = False
        self._connection = connection
        self._layout = layout()

    def ask(self, sql: str) -> Row | None:
        found: Row | None = self._connection.execute(sql).fetchone()
        return found

    def rows(self, table: str) -> Iterator[Row]:
        found = self._connection.execute(f'SELECT {self._columns(table)} FROM "{table}"')
        places = self._places(table)
        return (with_values(row, places, as_bytes) for row in found) if places else found

    def write(self, table: str, rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(self._layout[table]))
        insert = f'INSERT INTO "{table}" ({self._columns(table)}) VALUES ({marks})'
        places = self._places(table)
        self._connection.executemany(insert, (with_values(row, places, from_bytes) for row in rows))

    def last_ids(self) -> Mapping[str, int]:
        used = dict(self._connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        newest = {table: self.ask(f'SELECT coalesce(max(id), 0) FROM "{table}"') for table in self._numbered()}
        return {table: max(used.get(table, 0), found[0] if found else 0) for table, found in newest.items()}

    def go_on_after(self, ids: Mapping[str, int]) -> None:
        self._connection.execute("DELETE FROM sqlite_sequence")
        self._connection.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", ids.items())

    def commit(self) -> None:
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")

    def _columns(self, table: str) -> str:
        return quoted(self._layout[table])

    def _numbered(self) -> list[str]:
        return [table for table, columns in self._layout.items() if "id" in columns]

    def _places(self, table: str) -> list[tuple[int, int]]:
        """Return where a row has the type of a value, and the value; encrypted ones are bytes everywhere."""
        columns = self._layout[table]
        return [
            (columns.index(kind), columns.index(value))
            for name, _, _, kind, value in VALUES
            if name == table and not self.is_sealed
        ]


class PgSide:
    def __init__(self, server: PgServer, session: PgSession) -> None:
        self.name = f"{server.name}, schema {server.schema}"
        self.is_sealed = False
        self._session = session
        self._layout = layout()

    def begin(self) -> None:
        tables = ", ".join(quoted(["node", *self._layout]).split(", "))
        self._session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        self._session.execute(f"SET LOCAL lock_timeout = '{LOCKED_S}s'")
        self._session.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
        if names := [row[0] for row in self._session.execute(LIVING)]:
            raise StoreError(f"{self.name}: {', '.join(names)} runs on it: end every node first")

    def ask(self, sql: str) -> Row | None:
        cursor = self._session.execute(sql)
        return cursor.fetchone() if cursor.description else None

    def rows(self, table: str) -> Iterator[Row]:
        with self._session.cursor(name="moving") as cursor:
            cursor.itersize = AT_ONCE
            yield from cursor.execute(f'SELECT {quoted(self._layout[table])} FROM "{table}"')

    def write(self, table: str, rows: Iterable[Row]) -> None:
        into = f'COPY "{table}" ({quoted(self._layout[table])}) FROM STDIN'
        with self._session.cursor() as cursor, cursor.copy(into) as copy:
            for row in rows:
                copy.write_row([without_nul(each) if isinstance(each, str) else each for each in row])

    def last_ids(self) -> Mapping[str, int]:
        found = {table: self.ask(f"SELECT pg_sequence_last_value('{name}')") for table, name in self._sequences()}
        return {table: row[0] for table, row in found.items() if row and row[0]}

    def go_on_after(self, ids: Mapping[str, int]) -> None:
        for table, name in self._sequences():
            if number := ids.get(table):
                self.ask(f"SELECT setval('{name}', {number:d})")

    def commit(self) -> None:
        self._session.execute("COMMIT")
        self._session.execute("BEGIN")

    def _sequences(self) -> list[tuple[str, str]]:
        """Return the tables whose rows are numbered, and the names of their sequences."""
        tables = [table for table, columns in self._layout.items() if "id" in columns]
        found = [(table, self.ask(f"SELECT pg_get_serial_sequence('{table}', 'id')")) for table in tables]
        return [(table, row[0].replace("'", "''")) for table, row in found if row and row[0]]


Side = SqliteSide | PgSide  # of a move: a database in a transaction of its own


def with_values(row: Row, places: Sequence[tuple[int, int]], convert: Callable[[str, Any], Column]) -> Row:
    """Return a row with its values converted."""
    changed = list(row)
    for kind, value in places:
        if row[kind] is not None:
            changed[value] = convert(row[kind], row[value])
    return changed


def as_bytes(_kind: str, column: Column) -> bytes:
    return to_bytes(column)


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
