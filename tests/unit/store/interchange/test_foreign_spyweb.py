"""SpyWeb's database, as it would have written it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.store.interchange.foreign_spyweb import REDB_MAGIC, OldRecord, copy_tables, describe_data_file, read_spyweb
from spyweb.store.sqlite.records import LATEST_NS

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
THEN_NS = 1_700_000_000_000_000_123
LAYOUT = """
    CREATE TABLE records (
        job_id TEXT NOT NULL, rev_ts INTEGER NOT NULL, json TEXT NOT NULL, PRIMARY KEY (job_id, rev_ts)
    );
    CREATE TABLE seen (hash TEXT PRIMARY KEY);
    CREATE TABLE lua_user (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


def make(path: Path, *keys: tuple[object, object], script: str = "") -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(LAYOUT + script)
        connection.executemany("INSERT INTO lua_user VALUES (?, ?)", keys)
    return path


def with_records(path: Path, *records: tuple[str, int, object]) -> Path:
    with closing(sqlite3.connect(make(path))) as connection, connection:
        rows = [(job, number, text if isinstance(text, str) else json.dumps(text)) for job, number, text in records]
        connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
    return path


def rows_of(path: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


def test_keys_of_a_job_go_to_the_job_and_bare_keys_to_all(tmp_path: Path) -> None:
    rows = [
        ("prices:last", "1"),
        ("my__job:a:b", "2"),
        ("total", "3"),
        ("Not An Id:x", "4"),
        (":x", "5"),
        ("__server:k", "6"),
    ]
    found = read_spyweb(make(tmp_path / "data", *rows), NOW_MS)
    assert [(item.namespace, item.key, item.entry.value) for item in found.items] == [
        ("job:prices", b"last", b"1"),
        ("job:my__job", b"a:b", b"2"),
        ("global", b"total", b"3"),
        ("global", b"Not An Id:x", b"4"),
        ("global", b":x", b"5"),
        ("job:__server", b"k", b"6"),
    ]


def test_a_number_that_a_script_put_there_by_sql_is_its_text(tmp_path: Path) -> None:
    path = make(tmp_path / "data", script="DROP TABLE lua_user; CREATE TABLE lua_user (key, value)")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO lua_user VALUES (1, 2)")
    (item,) = read_spyweb(path, NOW_MS).items
    assert (item.key, item.entry.value) == (b"1", b"2")


def test_records_are_read_with_their_moment_oldest_first(tmp_path: Path) -> None:
    later = {"fields": {"title": "B", "price": "2"}, "timestamp": THEN_NS + 5, "hash": "x", "match_key": ["tea"]}
    earlier = {"fields": {"title": "A"}, "timestamp": THEN_NS, "hash": "y", "match_key": []}
    found = read_spyweb(
        with_records(tmp_path / "data", ("shop", THEN_NS + 5, later), ("shop", THEN_NS, earlier)), NOW_MS
    )
    assert found.records == {
        JobId("shop"): [
            OldRecord(fields={"title": "A"}, matches=[], url="", found_ns=THEN_NS),
            OldRecord(fields={"title": "B", "price": "2"}, matches=["tea"], url="", found_ns=THEN_NS + 5),
        ]
    }
    assert found.unreadable == 0


def test_fields_beside_the_rest_and_a_time_that_counts_back_are_read_as_well(tmp_path: Path) -> None:
    flat = {"title": "A", "page_url": "http://x.test/", "hash": "y", "job_id": "shop", "date_time": "...", "n": 3}
    found = read_spyweb(with_records(tmp_path / "data", ("shop", LATEST_NS - THEN_NS, flat)), NOW_MS)
    (record,) = found.records[JobId("shop")]
    assert record == OldRecord(fields={"title": "A", "n": "3"}, matches=[], url="http://x.test/", found_ns=THEN_NS)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"fields": {}}', '{"fields": {"a": "b"}, "timestamp": -1}', "\x00"])
def test_a_record_that_can_not_be_read_is_counted_and_left_out(tmp_path: Path, text: str) -> None:
    found = read_spyweb(with_records(tmp_path / "data", ("shop", -1, text)), NOW_MS)
    assert (found.records, found.unreadable) == ({}, 1)


def test_a_file_of_something_else_is_one_clear_line(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE a (b)")
    for path, reason in [(tmp_path / "nothing", "there is no such file"), (other, "has no table lua_user")]:
        with pytest.raises(Refused, match=reason):
            read_spyweb(path, NOW_MS)


PRICES = """
    CREATE TABLE prices (id INTEGER PRIMARY KEY, name TEXT UNIQUE, cents INTEGER, euros AS (cents / 100.0));
    CREATE INDEX by_cents ON prices (cents);
    INSERT INTO prices (name, cents) VALUES ('tea', 250), ('jam', 399);
    CREATE TABLE "odd ""name" (a);
    INSERT INTO "odd ""name" VALUES (x'00ff');
"""


def test_the_scripts_own_tables_are_copied_with_rows_and_indexes(tmp_path: Path) -> None:
    old, new = make(tmp_path / "data", script=PRICES), tmp_path / "here" / "user.db"
    assert read_spyweb(old, NOW_MS).tables == ["prices", 'odd "name']
    assert copy_tables(old, new) == (["prices", 'odd "name'], [])
    assert rows_of(new, "SELECT id, name, cents, euros FROM prices") == [(1, "tea", 250, 2.5), (2, "jam", 399, 3.99)]
    assert rows_of(new, 'SELECT a FROM "odd ""name"') == [(b"\0\xff",)]
    assert ("by_cents",) in rows_of(new, "SELECT name FROM sqlite_master WHERE type = 'index'")


def test_a_table_that_is_here_already_stays_as_it_is(tmp_path: Path) -> None:
    old, new = make(tmp_path / "data", script=PRICES), tmp_path / "here" / "user.db"
    copy_tables(old, new)
    with closing(sqlite3.connect(new)) as connection, connection:
        connection.execute("DELETE FROM prices")
        connection.execute('DROP TABLE "odd ""name"')
    assert copy_tables(old, new) == (['odd "name'], ["prices"])
    assert rows_of(new, "SELECT * FROM prices") == []


def test_where_one_table_can_not_be_copied_none_is(tmp_path: Path) -> None:
    old, new = make(tmp_path / "data", script=PRICES + "CREATE TABLE last (a);"), tmp_path / "here" / "user.db"
    new.parent.mkdir()
    with closing(sqlite3.connect(new)) as connection, connection:
        connection.execute("CREATE TABLE other (a)")
        connection.execute("CREATE INDEX by_cents ON other (a)")
    with pytest.raises(Refused, match="and none was: index by_cents already exists"):
        copy_tables(old, new)
    assert rows_of(new, "SELECT name FROM sqlite_master WHERE type = 'table'") == [("other",)]


def test_the_file_data_of_a_spyweb_project_is_told_with_the_command_that_brings_it(tmp_path: Path) -> None:
    path = make(tmp_path / "data")
    assert "`spyweb state import --from spyweb data`" in describe_data_file(path)
    path.write_bytes(REDB_MAGIC + b"rest")
    assert "only SpyWeb can read" in describe_data_file(path)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"SQLite format 3\0"])
def test_any_other_file_data_is_nobodys_business(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data").write_bytes(content)
    assert describe_data_file(tmp_path / "data") == ""
    assert describe_data_file(tmp_path / "nothing") == ""
    assert describe_data_file(tmp_path) == ""
