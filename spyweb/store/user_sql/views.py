"""Limit the SQL of scripts to their own tables and three views of the engine's database: records, seen and lua_user.

SQLite asks `Guard.authorize` about every step of a statement while it compiles it.  It names the view, or the
subquery, that a step comes from; since a script can give a subquery any name, the engine's tables are read in one whose
name is a secret, and a statement that spells the secret is refused.  With the store in memory there is no database of
the engine's: the views are there and empty.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from spyweb.model import JobId
from spyweb.store.encoding import Cell, Column, Type, encode
from spyweb.store.encryption import Place, codec_for
from spyweb.store.model.entries import GLOBAL, job_namespace

ENGINE = "engine"  # the engine's database, as it is attached
VIEWS = frozenset({"records", "seen", "lua_user"})

READING = frozenset({
    "application_id", "collation_list", "compile_options", "data_version", "encoding", "foreign_key_check",
    "foreign_key_list", "foreign_keys", "freelist_count", "function_list", "index_info", "index_list", "index_xinfo",
    "integrity_check", "journal_mode", "page_count", "page_size", "quick_check", "synchronous", "table_info",
    "table_list", "table_xinfo", "user_version",
})  # fmt: skip
WRITING = frozenset({"application_id", "defer_foreign_keys", "optimize", "user_version"})
# Pragmas that SpyWeb's scripts set at their top: already so, or not theirs to choose, and no reason to fail.
IDLE = frozenset({
    "auto_vacuum", "busy_timeout", "cache_size", "foreign_keys", "journal_mode", "mmap_size", "synchronous",
    "temp_store", "wal_autocheckpoint",
})  # fmt: skip
ABOUT_A_TABLE = frozenset(name for name in READING if "check" in name or "list" in name or "info" in name)

REFUSED = {
    sqlite3.SQLITE_ATTACH: "ATTACH and VACUUM are",
    sqlite3.SQLITE_DETACH: "DETACH is",
    sqlite3.SQLITE_CREATE_VTABLE: "CREATE VIRTUAL TABLE is",
    sqlite3.SQLITE_DROP_VTABLE: "DROP of a virtual table is",
}
NAMING = frozenset({
    sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_VIEW,
    sqlite3.SQLITE_CREATE_TEMP_VIEW, sqlite3.SQLITE_DROP_TABLE, sqlite3.SQLITE_DROP_VIEW,
    sqlite3.SQLITE_DROP_TEMP_TABLE, sqlite3.SQLITE_DROP_TEMP_VIEW,
})  # fmt: skip
FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "edit", "readfile", "writefile"})
HIDDEN_TABLES = frozenset({"sqlite_dbpage", "sqlite_stmt", "dbstat", "pragma_database_list"})
COUNTED = frozenset({"record", "seen", "entry"})  # a join that needs no column of a view asks for its table like this
SECRET = re.compile("spyweb_[0-9a-f]{32}", re.IGNORECASE)


def spells_a_secret(sql: str) -> bool:
    """Return whether a statement spells a name that only the views may use; SQLite knows no other way to write it."""
    return SECRET.search(sql) is not None


class Guard:
    """Decides what one connection may do; it holds the secret, and keeps the reason of its last refusal."""

    def __init__(self, own_functions: frozenset[str] = frozenset()) -> None:
        self.secret = f"spyweb_{secrets.token_hex(16)}"
        self.reason = ""
        self._own_functions = own_functions  # for the views alone
        self.has_views = True  # False: a statement that reads one is refused
        self._is_trusted = False  # the compiled statement is not a script's

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """Permit anything meanwhile."""
        self._is_trusted = True
        try:
            yield
        finally:
            self._is_trusted = False

    def authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, context: str | None
    ) -> int:
        """Tell SQLite whether it may compile this step.  A refusal records its reason."""
        if context == self.secret and not self.has_views:
            return self._refuse(f"with PostgreSQL there are no views {', '.join(sorted(VIEWS))}")
        if context == self.secret or self._is_trusted:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_PRAGMA:
            name = (first or "").lower()
            if database == ENGINE:
                return self._refuse("the engine's database has no pragmas here")
            if name in WRITING or (name in READING and (second is None or name in ABOUT_A_TABLE)):
                return sqlite3.SQLITE_OK
            return sqlite3.SQLITE_IGNORE if name in IDLE else self._refuse(f"PRAGMA {name} is not allowed")
        reason = self._objection(action, (first or "").lower(), (second or "").lower(), database)
        return self._refuse(reason) if reason else sqlite3.SQLITE_OK

    def _objection(self, action: int, first: str, second: str, database: str | None) -> str:
        if action in REFUSED:
            return f"{REFUSED[action]} not allowed"
        if action == sqlite3.SQLITE_FUNCTION and second in FORBIDDEN_FUNCTIONS | self._own_functions:
            return f"{second}() is not allowed"
        if database == ENGINE and not (action == sqlite3.SQLITE_READ and first in COUNTED and not second):
            return f"of the engine's own tables only the views {', '.join(sorted(VIEWS))} can be read"
        if action in NAMING and first in VIEWS:
            return f"{first} is a view of the engine's, and its name is taken"
        if action == sqlite3.SQLITE_READ and first in HIDDEN_TABLES:
            return f"{first} can't be read"
        return ""

    def _refuse(self, reason: str) -> int:
        self.reason = reason
        return sqlite3.SQLITE_DENY


NOW, OPENED = "spyweb_now_ms", "spyweb_opened"  # functions of ours, for these views alone
FUNCTIONS = frozenset({NOW, OPENED})

EMPTY = {
    "records": "SELECT '' AS job_id, 0 AS rev_ts, '' AS json WHERE 0",
    "seen": "SELECT '' AS job_id, '' AS hash, 0 AS first_ms, 0 AS last_ms WHERE 0",
    "lua_user": "SELECT '' AS key, '' AS value WHERE 0",
}
# As SpyWeb's own table: each field at top level, the newest first.
RECORDS_VIEW = f"""
    SELECT job AS job_id, rev_ts, json_patch(fields, json_object(
        'fields', json(fields),
        'match_key', json(matches),
        'page_url', url,
        'job_id', job,
        'date_time', strftime('%Y-%m-%dT%H:%M:%fZ', (9223372036854775807 - rev_ts) / 1000000 / 1000.0, 'unixepoch'),
        'timestamp', 9223372036854775807 - rev_ts,
        'hash', lower(hex(hash)),
        'old', json(coalesce(old, '{{}}'))
    )) AS json FROM {ENGINE}.record
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
    """Make the three views on a connection that has no guard yet; without `sees_others` they show the job's rows."""
    bodies = dict(EMPTY)
    if engine is not None:
        connection.execute(f"ATTACH ? AS {ENGINE}", (f"{engine.path.absolute().as_uri()}?mode=ro",))
        codec = codec_for(engine.key)

        def opened(namespace: str, key: bytes, version: int, kind: str, sealed: Column) -> Column:
            return encode(codec.read(Place(namespace, key, version), Cell(kind, sealed))).column

        connection.create_function(NOW, 0, now_ms)
        connection.create_function(OPENED, 5, opened)
        own = "" if sees_others else f" WHERE job = {_quoted(job)}"
        bodies = {
            "records": RECORDS_VIEW + own,
            "seen": SEEN_VIEW + own,
            "lua_user": lua_user_view(engine, job, sees_others=sees_others),
        }
    for name, body in bodies.items():
        # Only the subquery with the secret name may read the engine's tables.
        connection.execute(
            f'CREATE TEMP VIEW {name} AS WITH "{guard.secret}" AS ({body}) SELECT * FROM "{guard.secret}"'
        )


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
