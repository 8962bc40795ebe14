"""What the table of entries keeps beside the value."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from spyweb.store.protocol import Durability
from spyweb.store.sqlite.entries import WHOLE_NUMBER, expire, increment, parse_number, put
from spyweb.store.sqlite.store import open_up_to_date
from tests.fakes.growth import LINEAR, growth


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_up_to_date(tmp_path / "spyweb.db", Durability.NORMAL, 0)
    yield connection
    connection.close()


def read(database: sqlite3.Connection) -> tuple[object, ...]:
    row: tuple[object, ...] = database.execute(
        "SELECT type, value, expires_ms, version, created_ms, updated_ms FROM entry"
    ).fetchone()
    return row


def test_a_new_entry_has_version_one_and_two_equal_moments(database: sqlite3.Connection) -> None:
    put(database, "global", b"k", b"v", 1000)

    assert read(database) == ("s", b"v", None, 1, 1000, 1000)


def test_every_write_counts_up_the_version_and_keeps_the_moment_of_creation(database: sqlite3.Connection) -> None:
    put(database, "global", b"k", b"1", 1000)
    increment(database, "global", b"k", 0, 1, 2000)
    expire(database, "global", b"k", 9000, 3000)
    put(database, "global", b"k", b"v", 4000)

    assert read(database) == ("s", b"v", None, 4, 1000, 4000)


def test_writing_an_expired_entry_creates_it_anew_with_a_version_never_seen(database: sqlite3.Connection) -> None:
    put(database, "global", b"k", b"1", 1000)
    expire(database, "global", b"k", 2000, 1000)
    put(database, "global", b"k", b"v", 2000)

    assert read(database) == ("s", b"v", None, 3, 2000, 2000)


def test_many_puts_at_once_are_one_statement(database: sqlite3.Connection) -> None:
    put(database, "global", b"k", b"1", 1000)
    expire(database, "global", b"k", 9000, 1000)
    several = [("global", b"k", b"2", 2500), ("global", b"new", b"2", 2500), ("global", b"k", b"", 2600)]
    seen: list[str] = []
    database.set_trace_callback(seen.append)

    assert put.together(database, several) == [None] * 3

    assert len(seen) == 1
    rows = database.execute("SELECT key, value, expires_ms, version, created_ms, updated_ms FROM entry").fetchall()
    assert rows == [(b"k", b"", None, 4, 1000, 2600), (b"new", b"2", None, 1, 2500, 2500)]


def test_one_over_an_expired_entry_makes_each_be_put_by_itself(database: sqlite3.Connection) -> None:
    put(database, "global", b"old", b"1", 1000)
    expire(database, "global", b"old", 2000, 1000)
    with pytest.raises(sqlite3.IntegrityError):
        put.together(database, [("global", b"new", b"2", 2500), ("global", b"old", b"2", 2500)])
    for key in (b"new", b"old"):
        put(database, "global", key, b"2", 2500)

    rows = database.execute("SELECT key, version, created_ms FROM entry ORDER BY rowid").fetchall()
    assert rows == [(b"new", 1, 2500), (b"old", 3, 2500)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"007", 7),
        (b"-0", 0),
        (b"0", 0),
        (b"", 5),
        (b"+", 5),
        (b"0" * 100_000 + b"7", 7),
        (b"0" * 100_000 + b"x", 5),
        (b"0x7", 5),
        (b"9" * 20, 5),
    ],
)
def test_a_text_that_is_a_whole_number_counts_as_it_whatever_zeros_it_begins_with(text: bytes, number: int) -> None:
    assert parse_number(text, 5) == number


def test_a_text_that_is_no_whole_number_is_found_out_in_a_time_linear_in_its_length() -> None:
    assert growth(WHOLE_NUMBER.fullmatch, lambda size: b"0" * size + b"x", 5_000) < LINEAR
