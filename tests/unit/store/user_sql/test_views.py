from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from spyweb.clock import RealClock
from spyweb.errors import StoreError
from spyweb.model import JobId
from spyweb.store.model.entries import job_namespace
from spyweb.store.model.records import NewRecord
from spyweb.store.sqlite.store import Store, open_store
from spyweb.store.user_sql.views import ENGINE, Engine, Guard, spells_a_secret
from tests.fakes.ops import make_sql
from tests.fakes.sql import Asker
from tests.fakes.stores import KEY, put

KEYS = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


@asynccontextmanager
async def opened(folder: Path, key: bytes | None = None) -> AsyncIterator[tuple[Store, Asker]]:
    clock = RealClock()
    store = await open_store(folder / "spyweb.db", clock=clock, key=key)
    try:
        async with make_sql(folder, clock, Engine(path=folder / "spyweb.db", key=key)) as database:
            yield store, Asker(database)
    finally:
        await store.close()


@KEYS
async def test_lua_user_shows_the_callers_keys_and_the_global_ones(tmp_path: Path, key: bytes | None) -> None:
    async with opened(tmp_path, key) as (store, asker):
        await store.values.set(job_namespace(JobId("a")), b"mine", b"1")
        await store.values.set(job_namespace(JobId("b")), b"theirs", b"2")
        await store.values.set("global", b"all", b"3\xff")
        await put(store, b"gone", b"x", namespace="global", expires_ms=1)
        await put(store, b"typed", 2.5, namespace="global")
        await put(store, b"state's", b"x", namespace="state")
        assert await asker.rows("SELECT * FROM lua_user ORDER BY key") == [
            {"key": b"a:mine", "value": b"1"},
            {"key": b"all", "value": b"3\xff"},
            {"key": b"typed", "value": b"2.5"},
        ]
        (row,) = await Asker(asker.database, "b", 2).rows("SELECT value FROM lua_user WHERE key = ?", "b:theirs")
        assert row == {"value": b"2"}


async def test_records_and_seen_are_those_of_every_job(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, asker):
        for job in ("a", "b"):
            record = NewRecord(hash=b"\x01", fields={"title": f"of {job}"}, matches=("x",), url="http://example.com/")
            await store.records.add(JobId(job), [record])
        (row,) = await asker.rows("SELECT json FROM records WHERE job_id = ? LIMIT 5", "b")
        assert isinstance(row["json"], bytes)
        shown = msgspec.json.decode(row["json"])
        assert shown["title"] == "of b"
        assert shown["fields"] == {"title": "of b"}
        assert isinstance(shown["timestamp"], int)
        assert shown["hash"] == "01"
        newest = await asker.rows("SELECT json FROM records")  # without asking for their order
        assert [msgspec.json.decode(row["json"])["job_id"] for row in newest] == ["b", "a"]  # type: ignore[arg-type]
        assert await asker.rows("SELECT job_id, hash FROM seen ORDER BY 1") == [
            {"job_id": b"a", "hash": b"01"},
            {"job_id": b"b", "hash": b"01"},
        ]


async def test_views_join_with_a_scripts_own_tables_also_where_no_column_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, asker):
        await store.records.add(JobId("a"), [NewRecord(hash=b"1", fields={"title": "T"})])
        await asker.changed("CREATE TABLE own AS SELECT 'a' AS job UNION ALL SELECT 'b'")
        assert await asker.rows("SELECT count(*) AS n FROM own, records, seen") == [{"n": 2}]
        assert await asker.rows("SELECT own.job FROM own JOIN records ON own.job = records.job_id") == [{"job": b"a"}]
        assert await asker.changed("CREATE TABLE copies AS SELECT * FROM records") == 0
        assert await asker.rows("SELECT count(*) AS n FROM copies") == [{"n": 1}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM engine.entry",
        "SELECT value FROM entry",
        "SELECT rowid FROM engine.entry",
        "SELECT * FROM engine.sqlite_master",
        "WITH records AS (SELECT value FROM engine.entry) SELECT * FROM records",
        "WITH lua_user AS MATERIALIZED (SELECT * FROM engine.entry) SELECT * FROM lua_user",
        "SELECT * FROM (SELECT value FROM engine.entry) AS lua_user",
        "SELECT (SELECT group_concat(value) FROM engine.entry) FROM lua_user",
        "SELECT 1 FROM lua_user WHERE EXISTS (SELECT 1 FROM engine.entry WHERE value = 'secret')",
        "SELECT * FROM engine.run",
        "SELECT count(*) FROM engine.run",
        "INSERT INTO engine.entry SELECT * FROM engine.entry",
        "UPDATE entry SET value = 'x'",
        "DELETE FROM engine.record",
        "DROP TABLE engine.entry",
        "CREATE TABLE engine.mine (a)",
        "CREATE TEMP TRIGGER t AFTER INSERT ON engine.entry BEGIN SELECT 1; END",
        "DELETE FROM records",
        "INSERT INTO lua_user VALUES ('a', 'b')",
        "DROP VIEW temp.records",
        "DETACH engine",
        "SELECT spyweb_opened('state', 'k', 1, 's', 'x')",
    ],
)
async def test_nothing_else_of_the_engines_is_reached(tmp_path: Path, sql: str) -> None:
    async with opened(tmp_path) as (store, asker):
        await store.values.set(job_namespace(JobId("b")), b"k", b"secret")
        await store.values.set("global", b"k", b"1")
        with pytest.raises(StoreError, match=r"not authorized|prohibited|is a view|no such table|may not be"):
            await asker.rows(sql)
        assert await store.values.get(job_namespace(JobId("b")), b"k") == b"secret"


async def test_what_a_script_saves_for_later_reaches_no_further(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, asker):
        await asker.rows("CREATE TEMP VIEW later AS SELECT value FROM engine.entry")
        with pytest.raises(StoreError, match="not authorized"):
            await asker.rows("SELECT * FROM later")


async def test_the_secret_place_can_be_found_out_but_not_spelt(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, asker):
        (row,) = await asker.rows("SELECT sql FROM sqlite_temp_master WHERE name = 'records'")
        assert isinstance(row["sql"], bytes)
        secret = row["sql"].decode().split('"')[1]
        for spelt in (secret, secret.upper()):
            with pytest.raises(StoreError, match="not authorized"):
                await asker.rows(f'WITH "{spelt}" AS (SELECT value FROM engine.entry) SELECT * FROM "{spelt}"')


async def test_a_table_of_a_scripts_own_does_not_stand_in_for_the_engines(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, asker):
        await asker.changed("CREATE TABLE record (rev_ts, job, hash, url, fields, matches)")
        await asker.changed("INSERT INTO record VALUES (1, 'a', x'00', '', '{}', '[]')")
        assert await asker.rows("SELECT * FROM records") == []


@pytest.fixture
def guard() -> Guard:
    return Guard(frozenset({"spyweb_opened"}))


def test_a_scripts_own_tables_are_its_own(guard: Guard) -> None:
    for action in (sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_READ, sqlite3.SQLITE_DROP_TABLE):
        assert guard.authorize(action, "queue", "a", "main", None) == sqlite3.SQLITE_OK
    assert guard.authorize(sqlite3.SQLITE_READ, "sqlite_dbpage", "data", "main", None) == sqlite3.SQLITE_DENY


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
