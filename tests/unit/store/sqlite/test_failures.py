"""SQLite's errors become spyweb's, each with one clear line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from spyweb.errors import SpywebError, StoreCorrupt, StoreError
from spyweb.store.sqlite.failures import translate


def failure(code: int, text: str = "something") -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt, "the database is damaged (something); `spyweb start --repair`"),
        (sqlite3.SQLITE_NOTADB, StoreCorrupt, "damaged"),
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


def test_an_error_of_the_module_itself_is_translated_too(tmp_path: Path) -> None:
    assert isinstance(translate(sqlite3.InterfaceError("bad parameter"), tmp_path), StoreError)


@pytest.mark.parametrize("error", [ValueError("a bug"), StoreError("known")])
def test_any_other_error_is_left_as_it_is(tmp_path: Path, error: Exception) -> None:
    assert translate(error, tmp_path) is error
