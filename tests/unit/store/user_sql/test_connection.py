from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from spyweb.model import Durability, JobId
from spyweb.store.user_sql.connection import Opening, UserConnection
from spyweb.store.user_sql.views import Guard
from tests.fakes.sql import statement

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


@pytest.fixture
def is_unwanted() -> Mock:
    """What is asked again and again whether the statement is to end."""
    return Mock(return_value=False)


@pytest.fixture
def user(tmp_path: Path, is_unwanted: Mock) -> Iterator[UserConnection]:
    guard = Guard()
    opening = Opening(path=tmp_path / "data/user.db", engine=None, durability=Durability.NORMAL)
    connection = opening.connect(JobId("a"), guard, lambda: 0)
    yield UserConnection(connection, guard, is_unwanted)
    connection.close()


def rows(user: UserConnection, sql: str, *parameters: str | bytes | int | float | None) -> list[dict[str, object]]:
    answered = user.perform(statement(sql, *parameters))
    if answered.error is not None:
        raise answered.error
    return [dict(row) for row in answered.rows]


def error(user: UserConnection, sql: str, *parameters: int) -> str:
    answered = user.perform(statement(sql, *parameters))
    assert answered.error is not None
    assert not answered.rows
    return str(answered.error)


def changed(user: UserConnection, sql: str) -> int:
    answered = user.perform(statement(sql, rows=False))
    assert answered.error is None, answered.error
    return answered.changed


def test_values_come_back_as_they_went_and_null_is_absent(user: UserConnection) -> None:
    changed(user, "CREATE TABLE t (a, b, c, d, e)")
    assert rows(user, "INSERT INTO t VALUES (?, ?, ?, ?, ?) RETURNING *", 1, 1.5, "te\0xt", b"\xff\0", None) == [
        {"a": 1, "b": 1.5, "c": b"te\0xt", "d": b"\xff\0"}
    ]
    assert rows(user, "SELECT CAST(x'ff' AS TEXT) AS broken") == [{"broken": b"\xff"}]


def test_changes_are_those_of_this_statement_and_of_a_definition_none(user: UserConnection) -> None:
    assert changed(user, "CREATE TABLE t (a)") == 0
    assert changed(user, "INSERT INTO t VALUES (1), (2), (3)") == 3
    assert changed(user, "CREATE INDEX i ON t (a)") == 0
    assert changed(user, "WITH x AS (SELECT 1) UPDATE t SET a = 0 WHERE a > 1") == 2
    assert changed(user, "INSERT INTO t VALUES (9) RETURNING a") == 1
    assert changed(user, "SELECT * FROM t") == 0
    assert changed(user, "DELETE FROM t") == 4
    assert changed(user, "DROP TABLE t") == 0


def test_one_statement_with_all_its_parameters(user: UserConnection) -> None:
    assert "one statement at a time" in error(user, "SELECT 1; SELECT 2")
    assert "uses 1, and there are 0 supplied" in error(user, "SELECT ?")
    assert "uses 1, and there are 2 supplied" in error(user, "SELECT ?", 1, 2)
    assert "uses 3, and there are 1 supplied" in error(user, "SELECT ?3", 1)
    assert error(user, "SELECT '\0'") == "the query contains a null character"
    assert rows(user, " -- nothing\n") == []


def test_foreign_keys_are_enforced_and_stay_so(user: UserConnection) -> None:
    changed(user, "CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    changed(user, "CREATE TABLE child (of REFERENCES parent)")
    changed(user, "PRAGMA foreign_keys = OFF")
    assert error(user, "INSERT INTO child VALUES (1)") == "FOREIGN KEY constraint failed"


ELSEWHERE = [
    ("ATTACH ':memory:' AS x", ": ATTACH and VACUUM are not allowed"),
    ("VACUUM", ": ATTACH and VACUUM are not allowed"),
    ("VACUUM INTO '{}/stolen.db'", ": ATTACH and VACUUM are not allowed"),
    ("DETACH main", ": DETACH is not allowed"),
    ("PRAGMA writable_schema = ON", ": PRAGMA writable_schema is not allowed"),
    ("PRAGMA database_list", ": PRAGMA database_list is not allowed"),
    ("PRAGMA hard_heap_limit = 1", ": PRAGMA hard_heap_limit is not allowed"),
    ("PRAGMA temp_store_directory = '/'", ": PRAGMA temp_store_directory is not allowed"),
    ("SELECT * FROM pragma_database_list", ": pragma_database_list can't be read"),
    ("SELECT LOAD_EXTENSION('x')", " to use function: LOAD_EXTENSION"),
    ("SELECT fts3_tokenizer('simple')", " to use function: fts3_tokenizer"),
    ("CREATE VIRTUAL TABLE f USING fts5(x)", ": CREATE VIRTUAL TABLE is not allowed"),
    ("CREATE TABLE Records (x)", ": records is a view of the engine's, and its name is taken"),
    ("DROP VIEW temp.seen", ": seen is a view of the engine's, and its name is taken"),
]


@pytest.mark.parametrize(("sql", "reason"), ELSEWHERE)
def test_what_leads_elsewhere_is_refused(user: UserConnection, tmp_path: Path, sql: str, reason: str) -> None:
    assert error(user, sql.format(tmp_path)) == f"not authorized{reason}"
    assert not (tmp_path / "stolen.db").exists()


def test_a_statement_that_never_ends_is_ended(user: UserConnection, is_unwanted: Mock) -> None:
    is_unwanted.side_effect = [False, False, False, True]
    assert error(user, ENDLESS) == "interrupted: a statement may take 5 s"
    is_unwanted.side_effect = None
    assert rows(user, "SELECT 1 AS a") == [{"a": 1}]


def test_no_more_rows_than_the_vm_could_take(user: UserConnection) -> None:
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100000) SELECT x, zeroblob(10) FROM c"
    assert error(user, many) == "the rows are larger than the memory limit of its VM (1 MB)"


def test_values_columns_and_memory_have_limits(user: UserConnection) -> None:
    assert error(user, "SELECT zeroblob(20000000)") == "string or blob too big"
    assert "too many columns" in error(user, f"SELECT {', '.join('1' * 501)}")
    assert rows(user, "PRAGMA page_size")


def test_a_transaction_is_told_of_and_can_be_rolled_back(user: UserConnection) -> None:
    changed(user, "CREATE TABLE t (a)")
    assert user.perform(statement("BEGIN")).in_transaction
    assert user.perform(statement("INSERT INTO t VALUES (1)")).in_transaction
    user.roll_back()
    assert not user.perform(statement("SELECT 1")).in_transaction
    user.roll_back()  # with nothing open, no error
    assert rows(user, "SELECT * FROM t") == []


def test_a_lock_is_never_waited_for(user: UserConnection, tmp_path: Path) -> None:
    changed(user, "CREATE TABLE t (a)")
    with sqlite3.connect(tmp_path / "data/user.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        answered = user.perform(statement("INSERT INTO t VALUES (1)"))
        assert (answered.is_busy, str(answered.error)) == (True, "database is locked")
        other.execute("ROLLBACK")
    other.close()


def test_a_transaction_whose_view_is_outdated_has_nothing_to_wait_for(user: UserConnection, tmp_path: Path) -> None:
    changed(user, "CREATE TABLE t (a)")
    changed(user, "BEGIN")
    rows(user, "SELECT * FROM t")
    with sqlite3.connect(tmp_path / "data/user.db", isolation_level=None) as other:
        other.execute("INSERT INTO t VALUES (1)")
    other.close()
    answered = user.perform(statement("INSERT INTO t VALUES (2)"))
    assert (answered.is_busy, str(answered.error)) == (False, "database is locked")


VIEWS = [
    "SELECT job_id, rev_ts, json FROM records",
    "SELECT job_id, hash, first_ms, last_ms FROM seen",
    "SELECT key, value FROM LUA_USER",
    "SELECT 1 FROM (SELECT 1) JOIN seen",
]


@pytest.mark.parametrize("sql", VIEWS)
def test_with_a_store_in_memory_the_views_are_there_and_empty_and_with_postgresql_refused(
    user: UserConnection, sql: str
) -> None:
    assert rows(user, sql) == []
    user._guard.has_views = False
    assert error(user, f"{sql} WHERE 1") == "not authorized: with PostgreSQL there are no views lua_user, records, seen"
    assert rows(user, "SELECT 1 AS n") == [{"n": 1}]
