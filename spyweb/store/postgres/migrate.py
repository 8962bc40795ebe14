"""Bring a schema on PostgreSQL to that of this spyweb: with SQLite's files, translated by rules.

A new one is made by store/sqlite/schema.sql and the schema.sql beside this.  The row of a migration in `migration` is
its lock: of two nodes that start at once, one waits and finds it done.  A migration that begins with `-- breaking` is
refused while a node of another version lives; without it, nodes of the version before go on, so it may only add.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import structlog
from psycopg import Cursor, errors

import spyweb
from spyweb.errors import StoreAbsent, StoreError
from spyweb.store.postgres.server import PgServer, PgSession
from spyweb.store.postgres.texts import translate_schema
from spyweb.store.sqlite import migrate as sqlite
from spyweb.store.sqlite.migrate import Migration, pending_of, split_statements

log = structlog.get_logger()

Rows = Cursor[tuple[object, ...]]

TRIES = 5
BREAKING = "-- breaking"
# Another node was faster: its transaction is over by now, or may be soon.
MEANWHILE = (
    errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateSchema, errors.DuplicateObject,
    errors.LockNotAvailable, errors.DeadlockDetected,
)  # fmt: skip
NOTE = "INSERT INTO migration VALUES ($1, $2, $3)"
OTHERS = """
    SELECT name, version FROM node JOIN lane ON lane.node = node.id JOIN heart ON heart.node = node.id
    WHERE state IN ('a', 'd') AND version <> $1 AND beat > clock_timestamp() - 2 * lease_ms * interval '1 ms'
"""


def bring_up_to_date(server: PgServer, session: PgSession, known: Sequence[Migration], now_ms: int) -> None:
    """Make the schema, or migrate it.  Raises StoreNewer where a newer spyweb has written it."""
    for tried in range(1, TRIES + 1):
        try:
            with session.transaction(), session.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '2s'")  # who waits for a long question keeps others waiting
                if not cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = $1", (server.schema,)).fetchone():
                    cursor.execute(f"CREATE SCHEMA {server.quoted_schema}")
                if has_record(server, cursor):
                    migrate(server, cursor, known, now_ms)
                else:
                    create(server, cursor, known, now_ms)
            return
        except MEANWHILE:
            if tried == TRIES:
                raise


def refuse_other(server: PgServer, session: PgSession, known: Sequence[Migration]) -> None:
    """Raise StoreError unless the schema is that of this spyweb."""
    with session.cursor() as cursor:
        if not has_record(server, cursor):
            raise StoreAbsent(f"{server.name}: there is no database yet: `spyweb start` makes it")
        if pending := find_pending(server, cursor, known):
            raise sqlite.older(server.name, pending)


def has_record(server: PgServer, cursor: Rows) -> bool:
    return cursor.execute("SELECT to_regclass($1)", (f"{server.quoted_schema}.migration",)).fetchone() != (None,)


def create(server: PgServer, cursor: Rows, known: Sequence[Migration], now_ms: int) -> None:
    apply(cursor, sqlite.RECORD)
    cursor.executemany(NOTE, [(migration.number, migration.name, now_ms) for migration in known])
    apply(cursor, files(sqlite.PACKAGE).joinpath("schema.sql").read_text())
    cursor.execute(files("spyweb.store.postgres").joinpath("schema.sql").read_text())
    log.info("a new database begins", path=server.name, schema=server.schema)


def migrate(server: PgServer, cursor: Rows, known: Sequence[Migration], now_ms: int) -> None:
    for migration in find_pending(server, cursor, known):
        others = cursor.execute(OTHERS, (spyweb.__version__,)) if migration.sql.startswith(BREAKING) else ()
        if names := ", ".join(f"{name} ({version})" for name, version in others):
            raise StoreError(f"{server.name}: {migration.name} needs all nodes of another version ended first: {names}")
        cursor.execute(NOTE, (migration.number, migration.name, now_ms))
        apply(cursor, migration.sql)
        log.info("the database is brought up to date", path=server.name, to=migration.name)


def apply(cursor: Rows, sql: str) -> None:
    for statement in split_statements(sql):
        cursor.execute(translate_schema(statement))


def find_pending(server: PgServer, cursor: Rows, known: Sequence[Migration]) -> list[Migration]:
    applied = cursor.execute("SELECT name FROM migration ORDER BY number").fetchall()
    return pending_of([str(name) for (name,) in applied], server.name, known)
