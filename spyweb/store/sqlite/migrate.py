"""Brings a database to the schema of this spyweb.

A new one is made from schema.sql.  An older one goes through numbered .sql files, each applied in a transaction and
recorded, and is copied before.  One with a migration that is unknown here is refused: its tables may mean something
else.  Everything here runs on the thread of the connection.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import structlog
from msgspec import Struct

import spyweb
from spyweb.errors import StoreError, StoreNewer
from spyweb.store.sqlite.damage import has_table

log = structlog.get_logger()

PACKAGE = "spyweb.store.sqlite"
MOVED = "moved"  # a table with the reason why nobody may use this database
RECORD = """
    CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_ms INTEGER NOT NULL)
"""


class Migration(Struct, frozen=True, kw_only=True):
    number: int
    name: str
    sql: str


def load_migrations() -> list[Migration]:
    """Return the migrations that this spyweb knows, in order; a file is named NUMBER_what_it_does.sql."""
    found = [file for file in files(PACKAGE).joinpath("migrations").iterdir() if file.name.endswith(".sql")]
    return [
        Migration(number=int(file.name.partition("_")[0]), name=file.name.removesuffix(".sql"), sql=file.read_text())
        for file in sorted(found, key=lambda file: file.name)
    ]


def migrate(connection: sqlite3.Connection, path: Path, known: Sequence[Migration], now_ms: int) -> None:
    pending = find_pending(connection, path, known)
    if 0 < len(pending) < len(known):
        copy = path.with_name(f"{path.name}.before-{pending[0].number:04d}")
        copy_aside(connection, copy)
        log.info("the database is brought up to date", to=pending[-1].name, copy=str(copy))
    for migration in pending:
        apply(connection, migration.sql, [migration], now_ms)


def create(connection: sqlite3.Connection, now_ms: int) -> None:
    """Make a new database, as if all migrations had been applied."""
    apply(connection, files(PACKAGE).joinpath("schema.sql").read_text(), load_migrations(), now_ms)


def find_pending(connection: sqlite3.Connection, database: Path | str, known: Sequence[Migration]) -> list[Migration]:
    """Return the migrations that are to be applied.  Raises StoreNewer where one was applied that is unknown."""
    names = "SELECT name FROM migration ORDER BY number"
    applied = [name for (name,) in connection.execute(names)] if has_table(connection, "migration") else []
    return pending_of(applied, database, known)


def pending_of(applied: Sequence[str], database: Path | str, known: Sequence[Migration]) -> list[Migration]:
    names = [migration.name for migration in known]
    if unknown := ", ".join(name for name in applied if name not in names):
        what = f"it has {unknown}, and spyweb {spyweb.__version__} knows up to {names[-1]}"
        raise StoreNewer(f"{database}: written by a newer spyweb: {what}")
    return [migration for migration in known if migration.name not in applied]


def refuse_moved(connection: sqlite3.Connection, database: Path | str) -> None:
    """Raise StoreError if everything was moved from here, or not yet all to here."""
    found = connection.execute(f"SELECT text FROM {MOVED}").fetchone() if has_table(connection, MOVED) else None
    if found:
        raise StoreError(f"{database}: {found[0]}")


def refuse_older(connection: sqlite3.Connection, path: Path, known: Sequence[Migration]) -> None:
    """Raise StoreError unless the database is that of this spyweb."""
    if pending := find_pending(connection, path, known):
        raise older(path, pending)


def older(database: Path | str, pending: Sequence[Migration]) -> StoreError:
    return StoreError(f"{database}: written by an older spyweb: `spyweb start` brings it up to {pending[-1].name}")


def copy_aside(connection: sqlite3.Connection, copy: Path) -> None:
    """Make a copy under a temporary name and rename it, so that a copy with the final name is complete."""
    unfinished = copy.with_name(f"{copy.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    try:
        with closing(sqlite3.connect(unfinished)) as target:
            connection.backup(target)
        os.replace(unfinished, copy)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # it would take space on a full disk
        raise


def apply(connection: sqlite3.Connection, sql: str, migrations: Sequence[Migration], now_ms: int) -> None:
    """Execute all of the SQL in a transaction, and record that these migrations are done."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(RECORD)
        for statement in split_statements(sql):
            connection.execute(statement)
        done = [(migration.number, migration.name, now_ms) for migration in migrations]
        connection.executemany("INSERT INTO migration VALUES (?, ?, ?)", done)
        connection.execute(f"PRAGMA user_version = {migrations[-1].number:d}")  # for an earlier spyweb
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        error.args = (f"migration {migrations[-1].name} failed: {error}",)
        raise


def split_statements(sql: str) -> Iterator[str]:
    """Yield one statement at a time, since executescript would commit the transaction that all belong to."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
