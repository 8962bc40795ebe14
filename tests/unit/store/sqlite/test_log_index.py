"""What SQLite notes about the log of a database that is open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.store.sqlite.damage import index_of, wal_of
from spyweb.store.sqlite.log_index import LogIndex


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
        yield path


def test_the_pages_of_the_log_and_its_least_size_are_told(path: Path) -> None:
    with closing(LogIndex(path)) as index:
        assert index.pages() > 0
        assert index.least_size() == wal_of(path).stat().st_size


def test_after_the_log_has_begun_anew_it_may_have_any_size(path: Path) -> None:
    with closing(LogIndex(path)) as index, closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert index.pages() == index.least_size() == 0


@pytest.mark.parametrize("content", [None, b"", b"\0" * 10])
def test_where_nothing_is_noted_nothing_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "b.db"
    if content is not None:
        index_of(path).write_bytes(content)
    with closing(LogIndex(path)) as index:
        assert (index.pages(), index.least_size()) == (0, 0)
    index.close()
