from __future__ import annotations

import sqlite3

import pytest

from spyweb.store.user_sql.guard import ENGINE, Guard, spells_a_secret


@pytest.fixture
def guard() -> Guard:
    return Guard(frozenset({"spyweb_opened"}))


def test_a_scripts_own_tables_are_its_own(guard: Guard) -> None:
    for action in (sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_READ, sqlite3.SQLITE_DROP_TABLE):
        assert guard.authorize(action, "queue", "a", "main", None) == sqlite3.SQLITE_OK


def test_the_engines_tables_are_read_in_the_secret_place_alone(guard: Guard) -> None:
    for context in (None, "records", guard.secret.upper(), Guard().secret):
        assert guard.authorize(sqlite3.SQLITE_READ, "entry", "value", ENGINE, context) == sqlite3.SQLITE_DENY
    assert guard.reason == "of the engine's own tables only the views lua_user, records, seen can be read"
    assert guard.authorize(sqlite3.SQLITE_READ, "entry", "value", ENGINE, guard.secret) == sqlite3.SQLITE_OK


def test_every_connection_has_a_secret_of_its_own_and_a_statement_that_spells_one_is_known() -> None:
    one, other = Guard().secret, Guard().secret
    assert one != other
    assert spells_a_secret(f'WITH "{one.upper()}" AS (SELECT 1) SELECT 1')
    assert not spells_a_secret("SELECT 'spyweb_records' FROM spyweb_opened")


@pytest.mark.parametrize(
    ("action", "first", "second", "reason"),
    [
        (sqlite3.SQLITE_ATTACH, "x.db", None, "ATTACH and VACUUM are not allowed"),
        (sqlite3.SQLITE_DETACH, "engine", None, "DETACH is not allowed"),
        (sqlite3.SQLITE_CREATE_VTABLE, "x", "fts5", "CREATE VIRTUAL TABLE is not allowed"),
        (sqlite3.SQLITE_FUNCTION, None, "LOAD_EXTENSION", "load_extension() is not allowed"),
        (sqlite3.SQLITE_FUNCTION, None, "spyweb_opened", "spyweb_opened() is not allowed"),
        (sqlite3.SQLITE_CREATE_TABLE, "Records", None, "records is a view of the engine's, and its name is taken"),
        (sqlite3.SQLITE_DROP_TEMP_VIEW, "seen", None, "seen is a view of the engine's, and its name is taken"),
        (sqlite3.SQLITE_READ, "sqlite_dbpage", "data", "sqlite_dbpage can't be read"),
        (sqlite3.SQLITE_PRAGMA, "writable_schema", "1", "PRAGMA writable_schema is not allowed"),
        (sqlite3.SQLITE_PRAGMA, "database_list", None, "PRAGMA database_list is not allowed"),
        (sqlite3.SQLITE_PRAGMA, "hard_heap_limit", "1", "PRAGMA hard_heap_limit is not allowed"),
        (sqlite3.SQLITE_PRAGMA, "temp_store_directory", "'/'", "PRAGMA temp_store_directory is not allowed"),
    ],
)
def test_what_leads_elsewhere_is_refused_with_its_reason(
    guard: Guard, action: int, first: str, second: str, reason: str
) -> None:
    assert guard.authorize(action, first, second, "main", None) == sqlite3.SQLITE_DENY
    assert guard.reason == reason


@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("table_info", "queue", sqlite3.SQLITE_OK),
        ("foreign_keys", None, sqlite3.SQLITE_OK),
        ("user_version", "3", sqlite3.SQLITE_OK),
        ("journal_mode", None, sqlite3.SQLITE_OK),
        ("journal_mode", "DELETE", sqlite3.SQLITE_IGNORE),
        ("foreign_keys", "OFF", sqlite3.SQLITE_IGNORE),
        ("busy_timeout", "60000", sqlite3.SQLITE_IGNORE),
    ],
)
def test_a_pragma_answers_is_set_or_does_nothing(guard: Guard, name: str, value: str | None, answer: int) -> None:
    assert guard.authorize(sqlite3.SQLITE_PRAGMA, name.upper(), value, None, None) == answer
