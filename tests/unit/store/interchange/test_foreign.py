"""Databases of other programs, as they would have written them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.errors import Refused
from spyweb.model import Value
from spyweb.store.interchange.foreign import read_sloth

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


def make(path: Path, script: str, rows: list[tuple[object, ...]], insert: str = "") -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(script)
        if rows:
            connection.executemany(insert, rows)
    return path


def documented(path: Path, *rows: tuple[object, ...]) -> Path:
    """Rows of key, value, type, expires_at."""
    return make(
        path, DOCUMENTED, list(rows), "INSERT INTO state_data (key, value, type, expires_at) VALUES (?, ?, ?, ?)"
    )


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
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE state_data SET created_at = '0001-01-01T00:00:00Z'")
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
    path = make(
        tmp_path / "state.db",
        f"{LATER}; INSERT INTO state (key, value) VALUES (CAST(x'6bff' AS TEXT), CAST(x'ff00' AS TEXT))",
        [],
    )
    assert values_of(path) == {b"k\xff": b"\xff\x00"}


def test_a_file_of_something_else_is_one_clear_line(tmp_path: Path) -> None:
    nothing, text, other = tmp_path / "nothing", tmp_path / "text", make(tmp_path / "other", "CREATE TABLE a (b);", [])
    text.write_text("not a database, but long enough to be taken for one" * 20)
    for path, reason in [(nothing, "there is no such file"), (text, "can't be read"), (other, "has no table")]:
        with pytest.raises(Refused, match=reason):
            read_sloth(path, "state", NOW_MS)


def test_reading_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = documented(tmp_path / "state.db", ("k", "1", "number", None))
    before = path.read_bytes()
    read_sloth(path, "state", NOW_MS)
    assert path.read_bytes() == before
