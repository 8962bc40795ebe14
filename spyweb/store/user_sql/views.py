"""The engine's data as scripts see it in SQL: records, seen and lua_user, read-only, from the engine's own file.

With the store in memory there is no such file: the views are there and empty.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from spyweb.model import JobId
from spyweb.store.crypto.sealing import Place, codec_for
from spyweb.store.encoding import Cell, Column, Type, encode
from spyweb.store.model.entries import GLOBAL, job_namespace
from spyweb.store.user_sql.guard import ENGINE, Guard

NOW, OPENED = "spyweb_now_ms", "spyweb_opened"  # functions of ours, for these views alone
FUNCTIONS = frozenset({NOW, OPENED})

EMPTY = {
    "records": "SELECT '' AS job_id, 0 AS rev_ts, '' AS json WHERE 0",
    "seen": "SELECT '' AS job_id, '' AS hash, 0 AS first_ms, 0 AS last_ms WHERE 0",
    "lua_user": "SELECT '' AS key, '' AS value WHERE 0",
}
# As SpyWeb's own table: each field at top level, the newest first.
RECORDS_VIEW = """
    SELECT job AS job_id, rev_ts, json_patch(fields, json_object(
        'fields', json(fields),
        'match_key', json(matches),
        'page_url', url,
        'job_id', job,
        'date_time', strftime('%Y-%m-%dT%H:%M:%fZ', (9223372036854775807 - rev_ts) / 1000000 / 1000.0, 'unixepoch'),
        'timestamp', 9223372036854775807 - rev_ts,
        'hash', lower(hex(hash))
    )) AS json FROM record
"""
SEEN_VIEW = f"SELECT job AS job_id, lower(hex(hash)) AS hash, first_ms, last_ms FROM {ENGINE}.seen"
TEXT_OF = f"""
    CASE type
        WHEN '{Type.BOOLEAN.value}' THEN CASE {{value}} WHEN 0 THEN 'false' ELSE 'true' END
        WHEN '{Type.NULL.value}' THEN 'null'
        WHEN '{Type.MSGPACK.value}' THEN NULL
        ELSE CAST({{value}} AS TEXT)
    END
"""


class Engine(Struct, frozen=True, kw_only=True):
    """The engine's database, and the key of its encrypted values."""

    path: Path
    key: bytes | None


def make_views(
    connection: sqlite3.Connection,
    guard: Guard,
    engine: Engine | None,
    job: JobId,
    now_ms: Callable[[], int],
    *,
    sees_others: bool = True,
) -> None:
    """Make the three views on a connection that has no guard yet; without `sees_others` they show what is the job's."""
    bodies = dict(EMPTY)
    if engine is not None:
        connection.execute(f"ATTACH ? AS {ENGINE}", (f"{engine.path.absolute().as_uri()}?mode=ro",))
        add_functions(connection, engine, now_ms)
        own = "" if sees_others else f" WHERE job = {_quoted(job)}"
        bodies = {
            "records": of_the_engine(RECORDS_VIEW) + own,
            "seen": SEEN_VIEW + own,
            "lua_user": lua_user_view(engine, job, sees_others=sees_others),
        }
    for name, body in bodies.items():
        # Only the subquery with the secret name may read the engine's tables.
        connection.execute(
            f'CREATE TEMP VIEW {name} AS WITH "{guard.secret}" AS ({body}) SELECT * FROM "{guard.secret}"'
        )


def of_the_engine(view: str) -> str:
    """Give the table its full name in the view, because a script may have a table of the same name."""
    return view.replace("FROM record\n", f"FROM {ENGINE}.record\n")


def add_functions(connection: sqlite3.Connection, engine: Engine, now_ms: Callable[[], int]) -> None:
    codec = codec_for(engine.key)

    def opened(namespace: str, key: bytes, version: int, kind: str, sealed: Column) -> Column:
        return encode(codec.read(Place(namespace, key, version), Cell(kind, sealed))).column

    connection.create_function(NOW, 0, now_ms)
    connection.create_function(OPENED, 5, opened)


def lua_user_view(engine: Engine, job: JobId, *, sees_others: bool = True) -> str:
    """Return the SQL that selects the job's own keys, written `job:key` as in SpyWeb, and the global ones."""
    value = "value" if engine.key is None else f"{OPENED}(namespace, key, version, type, value)"
    text = TEXT_OF.format(value=value)
    living = f"(expires_ms IS NULL OR expires_ms > {NOW}())"
    entries = f"FROM {ENGINE}.entry WHERE {living} AND namespace ="
    shared = f"UNION ALL SELECT CAST(key AS TEXT), {text} {entries} {_quoted(GLOBAL)}" if sees_others else ""
    return f"""
        SELECT {_quoted(f"{job}:")} || CAST(key AS TEXT) AS key, {text} AS value
        {entries} {_quoted(job_namespace(job))}
        {shared}
    """


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
