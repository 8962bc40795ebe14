"""A database that is removed, or replaced, while it is open: nothing is acknowledged that would be lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.errors import StoreCorrupt, StoreError, StoreMoved
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.damage import index_of, wal_of
from spyweb.store.sqlite.file_identity import FileIdentity, LogIndex
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "spyweb.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    path.parent.mkdir()
    store = await open_store(path, clock=FakeClock())
    await store.values.set(GLOBAL, b"k", b"before")
    yield store
    await store.close()


def remove(path: Path) -> None:
    path.unlink()


def remove_the_log(path: Path) -> None:
    wal_of(path).unlink()


def remove_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def put_another_in_its_place(path: Path) -> None:
    other = path.with_name("backup.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t (a)")
    os.replace(other, path)


@pytest.mark.parametrize("take_away", [remove, remove_the_log, remove_the_folder, put_another_in_its_place])
async def test_what_would_be_lost_is_refused_and_the_trouble_told(
    store: Store, path: Path, take_away: Callable[[Path], None]
) -> None:
    assert store.stats().failed == ""
    take_away(path)
    with pytest.raises(StoreMoved, match="was removed or replaced while it is open"):
        await store.values.set(GLOBAL, b"k", b"after")
    assert str(path) in store.stats().failed


@pytest.mark.parametrize("left", [0, 0.5])
async def test_a_log_that_was_cut_off_is_not_written_on_behind_the_gap(store: Store, path: Path, left: float) -> None:
    size = wal_of(path).stat().st_size
    os.truncate(wal_of(path), int(left * size))
    with pytest.raises(StoreCorrupt, match="db-wal was cut off while it was open"):
        await store.values.set(GLOBAL, b"k", b"after")
    assert wal_of(path).stat().st_size == int(left * size)
    assert "damaged" in store.stats().failed


async def test_a_log_that_another_program_begins_anew_is_not_cut_off(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert wal_of(path).stat().st_size == 0
    await store.values.set(GLOBAL, b"k", b"after")
    assert await store.values.get(GLOBAL, b"k") == b"after"


async def test_a_folder_that_is_put_back_is_written_to_again(store: Store, path: Path, tmp_path: Path) -> None:
    path.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="removed or replaced"):
        await store.values.set(GLOBAL, b"k", b"meanwhile")
    (tmp_path / "elsewhere").rename(path.parent)
    assert store.stats().failed == ""
    await store.values.set(GLOBAL, b"k", b"after")
    assert await store.values.get(GLOBAL, b"k") == b"after"


async def test_a_folder_that_cannot_be_looked_into_says_nothing(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileIdentity(path)

    def refuse(_: object) -> os.stat_result:
        raise PermissionError

    monkeypatch.setattr(os, "stat", refuse)
    assert files.trouble() is None


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
        yield path


def test_the_pages_of_the_log_and_its_least_size_are_told(logged: Path) -> None:
    with closing(LogIndex(logged)) as index:
        assert index.pages() > 0
        assert index.least_size() == wal_of(logged).stat().st_size


def test_after_the_log_has_begun_anew_it_may_have_any_size(logged: Path) -> None:
    with closing(LogIndex(logged)) as index, closing(sqlite3.connect(logged)) as other:
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
