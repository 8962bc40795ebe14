"""Move all that is stored to another database: from SQLite to PostgreSQL, back, or between two schemas.

The target gets it in one transaction, in which it is read again and compared.  Until the source says that it was moved,
the target says that it is unfinished.  So wherever it is cut, not both can be used, and another move goes on with it.
Who has a PostgreSQL open from before can't write to it meanwhile, nor when it was moved.  Rows are compared as
PostgreSQL has them: values are bytes.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import StoreError
from spyweb.model import Durability
from spyweb.settings.sections import Settings
from spyweb.store.encoding import Column
from spyweb.store.encryption import codec_for, from_bytes, to_bytes
from spyweb.store.lock import hold_database
from spyweb.store.postgres.migrate import bring_up_to_date, refuse_other
from spyweb.store.postgres.nodes import refuse_living
from spyweb.store.postgres.server import PgServer, PgSession, without_nul
from spyweb.store.postgres.store import server_of, translating
from spyweb.store.sqlite.damage import has_table
from spyweb.store.sqlite.failures import opening
from spyweb.store.sqlite.migrate import MOVED, create, load_migrations, refuse_older
from spyweb.store.sqlite.store import connect, refuse_unfit, set_up_writing
from spyweb.store.sqlite.vault import VALUES

SELECT = 'SELECT {} FROM "{}"'
COLUMNS = """
    SELECT tables.name, columns.name FROM sqlite_master AS tables JOIN pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT IN ('migration', 'last_commit') AND tables.name NOT LIKE 'sqlite_%'
    ORDER BY tables.name, columns.cid
"""  # without what each database has of its own
REFUSE = f"""
    CREATE FUNCTION {MOVED}() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = (SELECT text FROM {MOVED}); END $$
"""
UNFINISHED = "an unfinished copy of "
AT_ONCE = 100  # rows that a read brings, where one may have megabytes, and after which the progress is shown

Row = Sequence[Any]
Progress = Callable[[int], None]


class MovedTable(Struct, frozen=True, kw_only=True):
    """The rows of a table; the digest is the same whatever their order."""

    table: str
    rows: int
    digest: str


def move(
    source: AbstractContextManager[Side], target: AbstractContextManager[Side], expect: Progress, progress: Progress
) -> list[MovedTable]:
    """Move everything, and return what.  Raises StoreError where either can't be used, or they differ at the end."""
    with source as before, target as after:
        left = f"everything was moved to {after.name}: set [store] url"
        unfinished = f"{UNFINISHED}{before.name}: `spyweb store move` from there goes on with it"
        before.is_sealed = after.is_sealed = before.ask("SELECT count(*) FROM seal") != (0,)
        if (before.note(), after.note()) == (left, unfinished):  # it was cut before its last step
            moved = read_all(after, progress)
        else:
            make_room(before, after)
            expect(2 * sum(before.ask(f'SELECT count(*) FROM "{table}"')[0] for table in before.layout))
            moved = copy(before, after, progress)
            after.say(unfinished)
            before.say(left)
        after.say("")
    return moved


def make_room(before: Side, after: Side) -> None:
    """Remove what an interrupted move left.  Raises StoreError where the target has anything else."""
    for side in (before, after):
        note = side.note()
        if note and not (side is after and note.startswith(UNFINISHED)):
            raise StoreError(f"{side.name}: {note}")
    after.let_write()
    for table in after.layout:
        if note:
            after.do(f'DELETE FROM "{table}"')
        elif after.ask(f'SELECT EXISTS (SELECT 1 FROM "{table}")')[0]:
            raise StoreError(f"{after.name}: {table} has rows: expected a database or schema with nothing in it")


def copy(before: Side, after: Side, progress: Progress) -> list[MovedTable]:
    copied = [count(table, before.rows(table), partial(after.write, table), progress) for table in before.layout]
    after.go_on_after(before.last_ids())
    for each, found in zip(copied, read_all(after, progress), strict=True):
        if each != found:
            raise StoreError(f"{after.name}: {each.table} is not what {before.name} has; nothing was moved")
    return copied


def read_all(side: Side, progress: Progress) -> list[MovedTable]:
    return [count(table, side.rows(table), partial(deque, maxlen=0), progress) for table in side.layout]


def count(table: str, rows: Iterable[Row], use: Callable[[Iterator[Row]], object], progress: Progress) -> MovedTable:
    """Count the rows as they are used."""
    number = digest = 0

    def each() -> Iterator[Row]:
        nonlocal number, digest
        for row in rows:
            digest += int.from_bytes(blake2b(msgspec.msgpack.encode(row), digest_size=8).digest(), "big")
            number += 1
            if not number % AT_ONCE:
                progress(AT_ONCE)
            yield row

    use(each())
    progress(number % AT_ONCE)
    return MovedTable(table=table, rows=number, digest=f"{digest % (1 << 64):016x}")


def open_side(settings: Settings, key: bytes | None, clock: Clock, *, is_source: bool) -> AbstractContextManager[Side]:
    if settings.store.is_postgres:
        return postgres_side(server_of(settings), clock=clock, is_source=is_source)
    return sqlite_side(settings.store.path, key=key, clock=clock, is_source=is_source)


@contextmanager
def sqlite_side(path: Path, *, key: bytes | None, clock: Clock, is_source: bool) -> Iterator[Side]:
    """Open a SQLite database, made where it is absent if it is the target."""
    with opening(path), hold_database(path, clock=clock):
        if is_source:
            refuse_unfit(path, codec_for(key), Durability.FULL, None)
        with closing(connect(path)) as connection:
            set_up_writing(connection, Durability.FULL)
            if has_table(connection, "migration"):
                refuse_older(connection, path, load_migrations())
            else:
                create(connection, clock.now_ms())
            connection.execute("BEGIN IMMEDIATE")
            yield SqliteSide(str(path), connection)


@contextmanager
def postgres_side(server: PgServer, *, clock: Clock, is_source: bool) -> Iterator[Side]:
    """Open a schema, made where it is absent if it is the target; nobody writes to it, and no node joins, meanwhile."""
    with translating(server), closing(server.connect(statement_s=0)) as session:
        server.refuse_unfit(session)
        if is_source:
            refuse_other(server, session, load_migrations())
        else:
            bring_up_to_date(server, session, load_migrations(), clock.now_ms())
        side = PgSide(f"{server.name}, schema {server.schema}", session)
        session.execute("SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = 0")
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.execute(f"LOCK TABLE {quoted(['node', *side.layout])} IN EXCLUSIVE MODE")
        refuse_living(cast("sqlite3.Connection", session), side.name)
        yield side


class MoveSide:
    """A database of a move, in a transaction of its own."""

    is_sealed = False  # values are encrypted: bytes everywhere

    def __init__(self, name: str, connection: sqlite3.Connection | PgSession) -> None:
        self.name = name
        self._connection = connection
        self.layout: dict[str, list[str]] = {}  # the columns of each table, which both engines have
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
            create(empty, 0)
            for table, column in empty.execute(COLUMNS):
                self.layout.setdefault(table, []).append(column)

    def do(self, sql: str) -> None:
        self._connection.execute(sql)

    def ask(self, sql: str) -> Row:
        return self._connection.execute(sql).fetchone() or ()

    def note(self) -> str:
        """Return why nobody may use it; empty: anybody may."""
        has_note = self.ask(f"SELECT 1 FROM sqlite_master WHERE name = '{MOVED}'")
        return str(self.ask(f"SELECT text FROM {MOVED}")[0]) if has_note else ""

    def let_write(self) -> None:
        """Let who has it open write again, where the note has kept it from that."""

    def say(self, note: str) -> None:
        """Write, or remove, the note, and commit."""
        self.do(f"DROP TABLE IF EXISTS {MOVED}")
        if note:
            self.do("CREATE TABLE {} AS SELECT '{}' AS text".format(MOVED, note.replace("'", "''")))
        self.commit()

    def commit(self) -> None:
        self.do("COMMIT")
        self.do("BEGIN")


class SqliteSide(MoveSide):
    _connection: sqlite3.Connection

    def rows(self, table: str) -> Iterator[Row]:
        places, found = self._places(table), self._connection.execute(SELECT.format(quoted(self.layout[table]), table))
        return (with_values(row, places, lambda _, column: to_bytes(column)) for row in found)

    def write(self, table: str, rows: Iterable[Row]) -> None:
        places = self._places(table)
        columns = self.layout[table]
        insert = f'INSERT INTO "{table}" ({quoted(columns)}) VALUES ({", ".join("?" * len(columns))})'
        self._connection.executemany(insert, (with_values(row, places, from_bytes) for row in rows))

    def last_ids(self) -> Mapping[str, int]:
        """Return the highest number of each table whose numbers are used once."""
        return dict(self._connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())

    def go_on_after(self, ids: Mapping[str, int]) -> None:
        self._connection.execute("DELETE FROM sqlite_sequence")
        self._connection.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", ids.items())

    def _places(self, table: str) -> list[tuple[int, int]]:
        """Return where a row has the type of a value, and the value that PostgreSQL has as bytes."""
        place = self.layout[table].index
        kinds = [] if self.is_sealed else VALUES
        return [(place(kind), place(value)) for name, _, _, kind, value in kinds if name == table]


class PgSide(MoveSide):
    _connection: PgSession

    def rows(self, table: str) -> Iterator[Row]:
        with self._connection.cursor(name="moving") as cursor:
            cursor.itersize = AT_ONCE
            yield from cursor.execute(SELECT.format(quoted(self.layout[table]), table))

    def write(self, table: str, rows: Iterable[Row]) -> None:
        into = f'COPY "{table}" ({quoted(self.layout[table])}) FROM STDIN'
        with self._connection.cursor() as cursor, cursor.copy(into) as copying:
            for row in rows:
                copying.write_row([without_nul(each) if isinstance(each, str) else each for each in row])

    def let_write(self) -> None:
        self.do(f"DROP FUNCTION IF EXISTS {MOVED} CASCADE")

    def say(self, note: str) -> None:
        self.let_write()
        if note:
            self.do(REFUSE)
            for table in self.layout:
                on = f'BEFORE INSERT OR UPDATE OR DELETE ON "{table}"'
                self.do(f"CREATE TRIGGER {MOVED} {on} EXECUTE FUNCTION {MOVED}()")
        super().say(note)

    def last_ids(self) -> Mapping[str, int]:
        found = {table: self.ask(f"SELECT pg_sequence_last_value('{name}')")[0] for table, name in self._sequences()}
        return {table: last for table, last in found.items() if last}

    def go_on_after(self, ids: Mapping[str, int]) -> None:
        for table, name in self._sequences():
            self.do(f"SELECT setval('{name}', greatest({ids.get(table, 0)}, max(id), 1)) FROM \"{table}\"")

    def _sequences(self) -> Iterator[tuple[str, str]]:
        for table in (table for table, columns in self.layout.items() if "id" in columns):
            (name,) = self.ask(f"SELECT pg_get_serial_sequence('{table}', 'id')")
            if name:
                yield table, name


Side = SqliteSide | PgSide


def with_values(row: Row, places: Sequence[tuple[int, int]], convert: Callable[[str, Any], Column]) -> Row:
    changed = list(row)
    for kind, value in places:
        changed[value] = None if row[kind] is None else convert(row[kind], row[value])
    return changed


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
