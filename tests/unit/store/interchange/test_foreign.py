"""Databases of other programs, as they would have written them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.errors import Refused
from spyweb.model import JobId, Value
from spyweb.store.interchange.foreign import REDB_MAGIC, copy_tables, describe_data_file, read_sloth, read_spyweb
from spyweb.store.model.records import NewRecord
from spyweb.store.sqlite.records import LATEST_NS

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z

DOCUMENTED = """
    CREATE TABLE state_data (
        key TEXT PRIMARY KEY, value TEXT NOT NULL, type TEXT NOT NULL,
        created_at DATETIME DEFAULT CURRENT_TIMESTAMP, updated_at DATETIME DEFAULT CURRENT_TIMESTAMP,
        expires_at DATETIME NULL, version INTEGER DEFAULT 1
    );
    CREATE TABLE state_locks (lock_name TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_at DATETIME NOT NULL);
    INSERT INTO state_locks VALUES ('deploy', '4711', '2099-01-01T00:00:00Z');
"""
LATER = """
    CREATE TABLE state (
        key TEXT PRIMARY KEY, value TEXT NOT NULL,
        created_at DATETIME DEFAULT CURRENT_TIMESTAMP, updated_at DATETIME DEFAULT CURRENT_TIMESTAMP
    );
    CREATE TABLE locks (name TEXT PRIMARY KEY, holder TEXT NOT NULL, expires_at DATETIME NOT NULL);
"""


def make(path: Path, script: str, rows: Sequence[tuple[object, ...]] = (), insert: str = "") -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(script)
        if rows:
            connection.executemany(insert, rows)
    return path


def documented(path: Path, *rows: tuple[object, ...]) -> Path:
    """Rows of key, value, type, expires_at."""
    return make(path, DOCUMENTED, rows, "INSERT INTO state_data (key, value, type, expires_at) VALUES (?, ?, ?, ?)")


def values_of(path: Path) -> dict[bytes, Value]:
    return {item.key: item.entry.value for item in read_sloth(path, "state", NOW_MS).items}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "v1.2.3", b"v1.2.3"),
        ("string", "", b""),
        ("number", "3", 3),
        ("number", "9007199254740993", 9007199254740993),
        ("number", "0.5", 0.5),
        ("number", "1e+06", 1_000_000),
        ("number", "1e+300", 1e300),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("list", '["a",1,[true]]', [b"a", 1, [True]]),
        ("list", "[]", []),
        ("table", '{"a":{"b":1.0},"$base64":null}', {b"a": {b"b": 1}}),
        ("table", '{"$base64":"eA=="}', {b"$base64": b"eA=="}),
        ("table", "{}", {}),
    ],
)
def test_a_documented_type_is_read_as_the_value_it_was(tmp_path: Path, kind: str, text: str, value: Value) -> None:
    found = values_of(documented(tmp_path / "state.db", ("k", text, kind, None)))[b"k"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("number", "many", "is no number: 'many'"),
        ("number", "nan", "is no number that can be kept"),
        ("boolean", "yes", "is neither true nor false"),
        ("list", "[", "is not JSON"),
        ("userdata", "0x1", "is of an unknown type, 'userdata'"),
    ],
)
def test_a_row_that_can_not_be_read_is_told_with_its_key(tmp_path: Path, kind: str, text: str, reason: str) -> None:
    path = documented(tmp_path / "state.db", ("good", "1", "number", None), ("bad", text, kind, None))
    with pytest.raises(Refused) as caught:
        read_sloth(path, "state", NOW_MS)
    assert str(caught.value).startswith(f"{path}: key 'bad': {reason}")


def test_a_moment_that_was_never_set_is_now(tmp_path: Path) -> None:
    path = documented(tmp_path / "state.db", ("k", "1", "number", None))
    make(path, "UPDATE state_data SET created_at = '0001-01-01T00:00:00Z'")
    (item,) = read_sloth(path, "state", NOW_MS).items
    assert item.entry.created_ms == NOW_MS


@pytest.mark.parametrize(
    ("expires_at", "expires_ms"),
    [
        ("2026-01-01T03:00:00+02:00", NOW_MS + 3_600_000),
        ("2026-01-01T01:00:00Z", NOW_MS + 3_600_000),
        ("2026-01-01 01:00:00", NOW_MS + 3_600_000),
        ("2025-12-31 22:00:00.123456789-03:00", NOW_MS + 3_600_123),
        (None, None),
        ("", None),
    ],
)
def test_an_expiry_is_read_in_every_form_it_was_written_in(
    tmp_path: Path, expires_at: str | None, expires_ms: int | None
) -> None:
    (item,) = read_sloth(documented(tmp_path / "state.db", ("k", "1", "number", expires_at)), "state", NOW_MS).items
    assert item.entry.expires_ms == expires_ms


def test_what_has_expired_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = [("old", "1", "number", "2025-12-31T23:59:59Z"), ("new", "1", "number", "2026-01-01T00:00:01Z")]
    found = read_sloth(documented(tmp_path / "state.db", *rows), "state", NOW_MS)
    assert [item.key for item in found.items] == [b"new"]
    assert found.expired == 1


def test_a_time_that_can_not_be_read_is_told_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="key 'k': has a time that can't be read: 'soon'"):
        read_sloth(documented(tmp_path / "state.db", ("k", "1", "number", "soon")), "state", NOW_MS)


def test_the_later_layout_keeps_text_alone(tmp_path: Path) -> None:
    insert = "INSERT INTO state VALUES (?, ?, '2024-02-03 04:05:06', '2024-02-03T04:05:07Z')"
    path = make(tmp_path / "state.db", LATER, [("n", "1.234567e+06")], insert)
    (item,) = read_sloth(path, "state@prod", NOW_MS).items
    assert (item.namespace, item.key, item.entry.value) == ("state@prod", b"n", b"1.234567e+06")
    assert (item.entry.created_ms, item.entry.updated_ms) == (1_706_933_106_000, 1_706_933_107_000)


def test_where_both_layouts_are_in_one_file_the_later_wins(tmp_path: Path) -> None:
    path = documented(tmp_path / "state.db", ("a", "1", "number", None), ("b", "2", "number", None))
    make(path, LATER, [("b", "newer")], "INSERT INTO state (key, value) VALUES (?, ?)")
    assert values_of(path) == {b"a": 1, b"b": b"newer"}


def test_text_that_is_not_utf_8_is_kept_as_it_is(tmp_path: Path) -> None:
    insert = "INSERT INTO state (key, value) VALUES (CAST(x'6bff' AS TEXT), CAST(x'ff00' AS TEXT))"
    path = make(tmp_path / "state.db", LATER + insert)
    assert values_of(path) == {b"k\xff": b"\xff\x00"}


def test_a_file_of_something_else_is_one_clear_line(tmp_path: Path) -> None:
    nothing, text, other = tmp_path / "nothing", tmp_path / "text", make(tmp_path / "other", "CREATE TABLE a (b)")
    text.write_text("not a database, but long enough to be taken for one" * 20)
    for path, reason in [(nothing, "there is no such file"), (text, "can't be read"), (other, "has no table")]:
        with pytest.raises(Refused, match=reason):
            read_sloth(path, "state", NOW_MS)
    for path, reason in [(nothing, "there is no such file"), (other, "has no table lua_user")]:
        with pytest.raises(Refused, match=reason):
            read_spyweb(path, NOW_MS)


def test_reading_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = documented(tmp_path / "state.db", ("k", "1", "number", None))
    before = path.read_bytes()
    read_sloth(path, "state", NOW_MS)
    assert path.read_bytes() == before


THEN_NS = 1_700_000_000_000_000_123
LAYOUT = """
    CREATE TABLE records (
        job_id TEXT NOT NULL, rev_ts INTEGER NOT NULL, json TEXT NOT NULL, PRIMARY KEY (job_id, rev_ts)
    );
    CREATE TABLE seen (hash TEXT PRIMARY KEY);
    CREATE TABLE lua_user (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


def make_project(path: Path, *keys: tuple[object, object], script: str = "") -> Path:
    return make(path, LAYOUT + script, keys, "INSERT INTO lua_user VALUES (?, ?)")


def with_records(path: Path, *records: tuple[str, int, object]) -> Path:
    rows = [(job, number, text if isinstance(text, str) else json.dumps(text)) for job, number, text in records]
    return make(path, LAYOUT, rows, "INSERT INTO records VALUES (?, ?, ?)")


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
    found = read_spyweb(make_project(tmp_path / "data", *rows), NOW_MS)
    assert [(item.namespace, item.key, item.entry.value) for item in found.items] == [
        ("job:prices", b"last", b"1"),
        ("job:my__job", b"a:b", b"2"),
        ("global", b"total", b"3"),
        ("global", b"Not An Id:x", b"4"),
        ("global", b":x", b"5"),
        ("job:__server", b"k", b"6"),
    ]


def test_a_number_that_a_script_put_there_by_sql_is_its_text(tmp_path: Path) -> None:
    script = "DROP TABLE lua_user; CREATE TABLE lua_user (key, value)"
    path = make_project(tmp_path / "data", (1, 2), script=script)
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
            NewRecord(hash=b"", fields={"title": "A"}, matches=[], url="", found_ns=THEN_NS),
            NewRecord(hash=b"", fields={"title": "B", "price": "2"}, matches=["tea"], url="", found_ns=THEN_NS + 5),
        ]
    }
    assert found.unreadable == 0


def test_fields_beside_the_rest_and_a_time_that_counts_back_are_read_as_well(tmp_path: Path) -> None:
    flat = {"title": "A", "page_url": "http://x.test/", "hash": "y", "job_id": "shop", "date_time": "...", "n": 3}
    found = read_spyweb(with_records(tmp_path / "data", ("shop", LATEST_NS - THEN_NS, flat)), NOW_MS)
    (record,) = found.records[JobId("shop")]
    assert record == NewRecord(
        hash=b"", fields={"title": "A", "n": "3"}, matches=[], url="http://x.test/", found_ns=THEN_NS
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"fields": {}}', '{"fields": {"a": "b"}, "timestamp": -1}', "\x00"])
def test_a_record_that_can_not_be_read_is_counted_and_left_out(tmp_path: Path, text: str) -> None:
    found = read_spyweb(with_records(tmp_path / "data", ("shop", -1, text)), NOW_MS)
    assert (found.records, found.unreadable) == ({}, 1)


PRICES = """
    CREATE TABLE prices (id INTEGER PRIMARY KEY, name TEXT UNIQUE, cents INTEGER, euros AS (cents / 100.0));
    CREATE INDEX by_cents ON prices (cents);
    INSERT INTO prices (name, cents) VALUES ('tea', 250), ('jam', 399);
    CREATE TABLE "odd ""name" (a);
    INSERT INTO "odd ""name" VALUES (x'00ff');
"""


def test_the_scripts_own_tables_are_copied_with_rows_and_indexes(tmp_path: Path) -> None:
    old, new = make_project(tmp_path / "data", script=PRICES), tmp_path / "here" / "user.db"
    assert read_spyweb(old, NOW_MS).tables == ["prices", 'odd "name']
    assert copy_tables(old, new) == (["prices", 'odd "name'], [])
    assert rows_of(new, "SELECT id, name, cents, euros FROM prices") == [(1, "tea", 250, 2.5), (2, "jam", 399, 3.99)]
    assert rows_of(new, 'SELECT a FROM "odd ""name"') == [(b"\0\xff",)]
    assert ("by_cents",) in rows_of(new, "SELECT name FROM sqlite_master WHERE type = 'index'")


def test_a_table_that_is_here_already_stays_as_it_is(tmp_path: Path) -> None:
    old, new = make_project(tmp_path / "data", script=PRICES), tmp_path / "here" / "user.db"
    copy_tables(old, new)
    make(new, 'DELETE FROM prices; DROP TABLE "odd ""name"')
    assert copy_tables(old, new) == (['odd "name'], ["prices"])
    assert rows_of(new, "SELECT * FROM prices") == []


def test_where_one_table_can_not_be_copied_none_is(tmp_path: Path) -> None:
    old, new = make_project(tmp_path / "data", script=PRICES + "CREATE TABLE last (a);"), tmp_path / "here" / "user.db"
    new.parent.mkdir()
    make(new, "CREATE TABLE other (a); CREATE INDEX by_cents ON other (a)")
    with pytest.raises(Refused, match="and none was: index by_cents already exists"):
        copy_tables(old, new)
    assert rows_of(new, "SELECT name FROM sqlite_master WHERE type = 'table'") == [("other",)]


def test_the_file_data_of_a_spyweb_project_is_told_with_the_command_that_brings_it(tmp_path: Path) -> None:
    path = make_project(tmp_path / "data")
    assert "`spyweb state import --from spyweb data`" in describe_data_file(path)
    path.write_bytes(REDB_MAGIC + b"rest")
    assert "only SpyWeb can read" in describe_data_file(path)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"SQLite format 3\0"])
def test_any_other_file_data_is_nobodys_business(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data").write_bytes(content)
    assert describe_data_file(tmp_path / "data") == ""
    assert describe_data_file(tmp_path / "nothing") == ""
    assert describe_data_file(tmp_path) == ""
