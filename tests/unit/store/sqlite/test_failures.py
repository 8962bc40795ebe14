"""SQLite's errors become spyweb's, each with one clear line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from spyweb.errors import SpywebError, StoreCorrupt, StoreError
from spyweb.store.sqlite.failures import opening, translate


def failure(code: int, text: str = "something") -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt, "the database is damaged (something); `spyweb start --repair`"),
        (sqlite3.SQLITE_NOTADB, StoreCorrupt, "damaged"),
        (sqlite3.SQLITE_IOERR_SHORT_READ, StoreCorrupt, "damaged"),
        (sqlite3.SQLITE_ERROR, StoreError, "something"),
        (sqlite3.SQLITE_BUSY, StoreError, "another process has locked the database (waited 5 s)"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreError, "another process has locked the database"),
        (sqlite3.SQLITE_FULL, StoreError, "no room left on the disk"),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreError, "something"),
        (sqlite3.SQLITE_READONLY, StoreError, "something"),
    ],
)
def test_an_error_is_translated_by_its_code(tmp_path: Path, code: int, kind: type[SpywebError], text: str) -> None:
    path = tmp_path / "spyweb.db"
    error = failure(code)

    translated = translate(error, path)

    assert type(translated) is kind
    assert text in str(translated)
    assert str(translated).startswith(f"{path}: ")
    assert translated.__cause__ is error


def test_what_may_be_a_passing_error_of_the_disk_is_not_called_damage_alone(tmp_path: Path) -> None:
    """What SQLite makes of an EIO."""
    translated = translate(failure(sqlite3.SQLITE_IOERR_CORRUPTFS, "disk I/O error"), tmp_path)

    assert isinstance(translated, StoreCorrupt)
    assert str(translated) == (
        f"{tmp_path}: the database is damaged, or the disk can't be read (disk I/O error); "
        "restart first; if that does not help, `spyweb start --repair` moves it aside"
    )


@pytest.mark.parametrize("text", ["no such table: entry", "Could not decode to UTF-8 column 'job' with text 'a\ufffd'"])
def test_what_spyweb_has_stored_and_does_not_find_is_damage(tmp_path: Path, text: str) -> None:
    assert isinstance(translate(sqlite3.OperationalError(text), tmp_path), StoreCorrupt)


def test_an_unknown_error_of_opening_is_damage_and_a_full_disk_is_not(tmp_path: Path) -> None:
    for code, kind in [(sqlite3.SQLITE_ERROR, StoreCorrupt), (sqlite3.SQLITE_FULL, StoreError)]:
        with pytest.raises(kind) as told, opening(tmp_path):
            raise failure(code)
        assert type(told.value) is kind


def test_an_error_of_the_module_itself_is_translated_too(tmp_path: Path) -> None:
    assert isinstance(translate(sqlite3.InterfaceError("bad parameter"), tmp_path), StoreError)


@pytest.mark.parametrize("error", [ValueError("a bug"), StoreError("known")])
def test_any_other_error_is_left_as_it_is(tmp_path: Path, error: Exception) -> None:
    assert translate(error, tmp_path) is error
