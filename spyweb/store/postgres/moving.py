"""Move all that is stored to another database: from SQLite to PostgreSQL, back, or between two schemas.

The target gets it in one transaction, in which both are read and compared; then the source says that it was moved.  Cut
between the two, another move finds the same on both sides, and says it.  Who has a PostgreSQL open from before can't
write to it meanwhile, nor when it was moved.  Rows are compared as PostgreSQL has them: values are bytes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import StoreError
from spyweb.model import Durability
from spyweb.settings.sections import Settings
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

COLUMNS = """
    SELECT tables.name, columns.name FROM sqlite_master AS tables JOIN pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT IN ('migration', 'last_commit') AND tables.name NOT LIKE 'sqlite_%'
    ORDER BY tables.name, columns.cid
"""  # without what each database has of its own
REFUSE = f"""
    CREATE FUNCTION {MOVED}() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = (SELECT text FROM {MOVED}); END $$
"""
LAST_IDS = r"""
    SELECT left(sequencename, -7), coalesce(last_value, 0) FROM pg_sequences
    WHERE schemaname = current_schema() AND sequencename LIKE '%\_id\_seq'
"""
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
        tables = list(before.layout)
        before.is_sealed = after.is_sealed = before.ask("SELECT count(*) FROM seal") != (0,)
        expect(2 * sum(before.ask(f'SELECT count(*) FROM "{table}"')[0] for table in tables))
        if not any(after.ask(f'SELECT EXISTS (SELECT 1 FROM "{table}")')[0] for table in tables):
            for table in tables:
                after.write(table, before.rows(table))
            after.go_on_after(before.last_ids())
        moved = [summarize(table, before, progress) for table in tables]
        for each in moved:
            if summarize(each.table, after, progress) != each:
                raise StoreError(
                    f"{after.name}: {each.table} has other rows than in {before.name}: "
                    "expected a database or schema with nothing in it; nothing was moved"
                )
        after.commit()
        before.close_for(f"everything was moved to {after.name}: set [store] url")
    return moved


def summarize(table: str, side: Side, progress: Progress) -> MovedTable:
    rows = digest = 0
    for rows, row in enumerate(side.rows(table), 1):
        digest += int.from_bytes(blake2b(msgspec.msgpack.encode(row), digest_size=8).digest(), "big")
        if not rows % AT_ONCE:
            progress(AT_ONCE)
    return MovedTable(table=table, rows=rows, digest=f"{digest % (1 << 64):016x}")


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
        session.execute("SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = 0")
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.execute(f"LOCK TABLE {quoted(['node', *layout_of()])} IN EXCLUSIVE MODE")
        side = PgSide(f"{server.name}, schema {server.schema}", session)
        refuse_living(cast("sqlite3.Connection", session), side.name)
        yield side


def layout_of() -> dict[str, list[str]]:
    """Return the columns of each table, which both engines have."""
    layout: dict[str, list[str]] = {}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        create(empty, 0)
        for table, column in empty.execute(COLUMNS):
            layout.setdefault(table, []).append(column)
    return layout


class MoveSide:
    """A database of a move, in a transaction of its own."""

    is_sealed = False  # values are encrypted: bytes everywhere

    def __init__(self, name: str, connection: sqlite3.Connection | PgSession) -> None:
        """Raise StoreError if everything was moved from there."""
        self.name = name
        self.layout = layout_of()
        self._connection = connection
        if self.ask(f"SELECT 1 FROM sqlite_master WHERE name = '{MOVED}'"):
            raise StoreError(f"{name}: {self.ask(f'SELECT text FROM {MOVED}')[0]}")

    def ask(self, sql: str) -> Row:
        return self._connection.execute(sql).fetchone() or ()

    def close_for(self, note: str) -> None:
        """Say to everybody why it is not to be used any more."""
        self._connection.execute("CREATE TABLE {} AS SELECT '{}' AS text".format(MOVED, note.replace("'", "''")))
        self.commit()

    def commit(self) -> None:
        self._connection.execute("COMMIT")


class SqliteSide(MoveSide):
    _connection: sqlite3.Connection

    def rows(self, table: str) -> Iterable[Row]:
        kinds = self._kinds(table)
        self._connection.create_function("to_bytes", 1, to_bytes)
        shown = [
            f'CASE WHEN "{kinds[column]}" IS NOT NULL THEN to_bytes("{column}") END'
            if column in kinds
            else f'"{column}"'
            for column in self.layout[table]
        ]
        return self._connection.execute(f'SELECT {", ".join(shown)} FROM "{table}"')

    def write(self, table: str, rows: Iterable[Row]) -> None:
        kinds = self._kinds(table)
        marks = {column: f"?{number}" for number, column in enumerate(self.layout[table], 1)}
        self._connection.create_function("from_bytes", 2, from_bytes)
        given = [f"from_bytes({marks[kinds[each]]}, {mark})" if each in kinds else mark for each, mark in marks.items()]
        self._connection.executemany(f'INSERT INTO "{table}" ({quoted(marks)}) VALUES ({", ".join(given)})', rows)

    def _kinds(self, table: str) -> Mapping[str, str]:
        """Return the columns of values that PostgreSQL has as bytes, each with the column of its type."""
        return {} if self.is_sealed else {value: kind for name, _, _, kind, value in VALUES if name == table}

    def last_ids(self) -> Mapping[str, int]:
        """Return the highest number of each table whose numbers are used once."""
        return dict(self._connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())

    def go_on_after(self, ids: Mapping[str, int]) -> None:
        self._connection.execute("DELETE FROM sqlite_sequence")
        self._connection.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", ids.items())


class PgSide(MoveSide):
    _connection: PgSession

    def rows(self, table: str) -> Iterable[Row]:
        with self._connection.cursor(name="moving") as cursor:
            cursor.itersize = AT_ONCE
            yield from cursor.execute(f'SELECT {quoted(self.layout[table])} FROM "{table}"')

    def write(self, table: str, rows: Iterable[Row]) -> None:
        into = f'COPY "{table}" ({quoted(self.layout[table])}) FROM STDIN'
        with self._connection.cursor() as cursor, cursor.copy(into) as copying:
            for row in rows:
                copying.write_row([without_nul(each) if isinstance(each, str) else each for each in row])

    def close_for(self, note: str) -> None:
        self._connection.execute(REFUSE)
        for table in self.layout:
            on = f'BEFORE INSERT OR UPDATE OR DELETE ON "{table}"'
            self._connection.execute(f"CREATE TRIGGER {MOVED} {on} EXECUTE FUNCTION {MOVED}()")
        super().close_for(note)

    def last_ids(self) -> Mapping[str, int]:
        return {table: last for table, last in self._connection.execute(LAST_IDS) if table in self.layout}

    def go_on_after(self, ids: Mapping[str, int]) -> None:
        for table in self.last_ids():
            last = f"greatest({ids.get(table, 0)}, max(id), 1)"
            self._connection.execute(f"SELECT setval('{table}_id_seq', {last}) FROM \"{table}\"")


Side = SqliteSide | PgSide


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
