"""Limit the SQL of scripts to their own tables and three views of the engine's database.

SQLite asks `Guard.authorize` about every step of a statement while it compiles it.  It names the view, or the
subquery, that a step comes from; since a script can give a subquery any name, the engine's tables are read in one whose
name is a secret, and a statement that spells the secret is refused.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

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
        self._is_trusted = False  # what is compiled is not a script's

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
        if context == self.secret or self._is_trusted:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_PRAGMA:
            return self._pragma((first or "").lower(), second, database)
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

    def _pragma(self, name: str, value: str | None, database: str | None) -> int:
        if database == ENGINE:
            return self._refuse("the engine's database has no pragmas here")
        only_reads = name in READING and (value is None or name in ABOUT_A_TABLE)
        if only_reads or name in WRITING:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_IGNORE if name in IDLE else self._refuse(f"PRAGMA {name} is not allowed")

    def _refuse(self, reason: str) -> int:
        self.reason = reason
        return sqlite3.SQLITE_DENY
