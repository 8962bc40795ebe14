"""Damage is found when the file is opened, or when a bad page is met; and the file is only ever moved."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from spyweb.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreMoved
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite import damage
from spyweb.store.sqlite.damage import FileIdentity, move_aside, wal_of, was_killed
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.clock import FakeClock
from tests.fakes.tables import files_beside

ENTRIES = 2000


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A database of many pages, closed as it should be."""
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    writes = [store.values.set(GLOBAL, b"k%d" % number, b"v" * 500) for number in range(ENTRIES)]
    await asyncio.gather(*writes)
    await store.close()
    return tmp_path / "spyweb.db"


def ruin(path: Path, start: float, stop: float) -> None:
    """Overwrite a part of the file, given as fractions of its size."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(int(size * start) // 4096 * 4096)
        file.write(b"\xff" * int(size * (stop - start)))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: ruin(path, 0, 0.01), "database"),
        (lambda path: ruin(path, 0.5, 0.6), "database"),
        (lambda path: path.write_text("dear diary, " * 1000), "not a database"),
        (lambda path: os.truncate(path, path.stat().st_size // 2), "malformed"),
    ],
    ids=["its header", "pages in the middle", "no database", "half of it"],
)
async def test_a_damaged_file_is_refused_when_it_is_opened(
    path: Path, harm: Callable[[Path], object], reason: str
) -> None:
    harm(path)

    with pytest.raises(StoreCorrupt, match=reason) as refused:
        await open_store(path, clock=FakeClock())

    assert refused.value.path == path
    assert "\n" not in str(refused.value)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "spyweb.db"
    path.parent.mkdir()
    return path


@pytest.fixture
async def killed(tmp_path: Path, data: Path) -> Path:
    """The files that a daemon leaves behind that was killed: three writes are in the log alone."""
    files = tmp_path / "running" / "spyweb.db"
    files.parent.mkdir()
    await (await open_store(files, clock=FakeClock())).close()
    store = await open_store(files, clock=FakeClock())
    for key in (b"a", b"b", b"c"):
        await store.values.set(GLOBAL, key, b"1")
    for suffix in ("", "-wal"):
        shutil.copy2(f"{files}{suffix}", f"{data}{suffix}")
    await store.close()
    return data


LOSSES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "shortened": lambda path: os.truncate(path, 4096),
    "overwritten": lambda path: path.write_bytes(b"dear diary, " * 4096),
    "its pages": lambda path: ruin(path, 0.15, 1),
}


# What is only read is not checked first.
@pytest.mark.parametrize(
    ("loss", "read_only"), [pair for pair in product(LOSSES, [False, True]) if pair != ("its pages", True)]
)
async def test_a_missing_or_damaged_database_keeps_the_log_of_a_killed_daemon(
    killed: Path, loss: str, read_only: bool
) -> None:
    LOSSES[loss](killed)
    before = files_beside(killed.parent)

    with pytest.raises((StoreIncomplete, StoreCorrupt), match="spyweb start --repair"):
        await open_store(killed, clock=FakeClock(), read_only=read_only)

    assert files_beside(killed.parent) == before


async def test_pages_that_a_broken_off_checkpoint_left_in_the_log_are_no_loss(tmp_path: Path) -> None:
    """It has written the first page, which tells the new size, and not yet the new pages."""
    files, path = tmp_path / "a.db", tmp_path / "b.db"
    await (await open_store(files, clock=FakeClock())).close()
    store = await open_store(files, clock=FakeClock())
    await store.values.set(GLOBAL, b"c", b"1" * 100_000)
    for suffix in ("", "-wal"):
        shutil.copy2(f"{files}{suffix}", f"{path}{suffix}")
    await store.close()
    with path.open("r+b") as file:
        file.write(files.read_bytes()[:4096])

    store = await open_store(path, clock=FakeClock())
    assert await store.values.get(GLOBAL, b"c") == b"1" * 100_000
    await store.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("place", [b"CREATE TABLE entry", b"entry (", b"namespace  TEXT", b"run_of_job", b"JSON"])
async def test_a_byte_of_the_schema_that_is_not_utf8_is_damage_and_not_a_traceback(
    path: Path, place: bytes, read_only: bool
) -> None:
    """Whether SQLite meets it, or Python's module, or neither: a table may have any name."""
    whole = path.read_bytes()
    path.write_bytes(whole.replace(place, b"\xff" + place[1:]))

    with pytest.raises(StoreCorrupt, match="spyweb start --repair"):
        await open_store(path, clock=FakeClock(), read_only=read_only)


async def test_a_large_file_is_looked_at_after_a_kill(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "CHECKED_ALWAYS_BYTES", 0)
    ruin(path, 0.5, 0.6)
    path.with_name("spyweb.db-wal").write_bytes(b"left behind")

    assert was_killed(path)
    with pytest.raises(StoreCorrupt):
        await open_store(path, clock=FakeClock())


async def test_a_database_moved_aside_can_still_be_read_and_makes_room(path: Path) -> None:
    for companion in ("spyweb.db-wal", "spyweb.db-shm"):
        path.with_name(companion).touch()
    before = path.read_bytes()

    aside = move_aside(path)

    assert re.fullmatch(r"spyweb\.db\.corrupt-\d{8}T\d{9}Z", aside.name)
    assert aside.read_bytes() == before
    left = sorted(file.name for file in path.parent.iterdir())
    assert left == ["spyweb.db-lock", aside.name, f"{aside.name}-shm", f"{aside.name}-wal"]
    store = await open_store(path, clock=FakeClock())
    assert await store.values.get(GLOBAL, b"k1") is None
    await store.close()
    copy = sqlite3.connect(aside)
    assert copy.execute("SELECT count(*) FROM entry").fetchone() == (ENTRIES,)
    copy.close()


@pytest.fixture
async def store(data: Path) -> AsyncIterator[Store]:
    store = await open_store(data, clock=FakeClock())
    await store.values.set(GLOBAL, b"k", b"before")
    yield store
    await store.close()


def put_another_in_its_place(path: Path) -> None:
    other = path.with_name("backup.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t (a)")
    os.replace(other, path)


AWAY: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "its log": lambda path: wal_of(path).unlink(),
    "its folder": lambda path: shutil.rmtree(path.parent),
    "replaced": put_another_in_its_place,
}


@pytest.mark.parametrize("take_away", AWAY.values(), ids=AWAY)
async def test_what_would_be_lost_is_refused_and_the_trouble_told(
    store: Store, data: Path, take_away: Callable[[Path], object]
) -> None:
    assert store.stats().failed == ""
    take_away(data)
    with pytest.raises(StoreMoved, match="was removed or replaced while spyweb uses it"):
        await store.values.set(GLOBAL, b"k", b"after")
    assert str(data) in store.stats().failed


@pytest.mark.parametrize("left", [0, 0.5])
async def test_a_log_that_was_cut_off_is_not_written_on_behind_the_gap(store: Store, data: Path, left: float) -> None:
    size = wal_of(data).stat().st_size
    os.truncate(wal_of(data), int(left * size))
    with pytest.raises(StoreCorrupt, match="db-wal was cut off while it was open"):
        await store.values.set(GLOBAL, b"k", b"after")
    assert wal_of(data).stat().st_size == int(left * size)
    assert "damaged" in store.stats().failed


async def test_a_log_that_another_program_begins_anew_is_not_cut_off(store: Store, data: Path) -> None:
    with closing(sqlite3.connect(data)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert wal_of(data).stat().st_size == 0
    await store.values.set(GLOBAL, b"k", b"after")
    assert await store.values.get(GLOBAL, b"k") == b"after"


async def test_a_folder_that_is_put_back_is_written_to_again(store: Store, data: Path, tmp_path: Path) -> None:
    data.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="removed or replaced"):
        await store.values.set(GLOBAL, b"k", b"meanwhile")
    (tmp_path / "elsewhere").rename(data.parent)
    assert store.stats().failed == ""
    await store.values.set(GLOBAL, b"k", b"after")
    assert await store.values.get(GLOBAL, b"k") == b"after"


async def test_a_folder_that_cannot_be_looked_into_says_nothing(
    store: Store, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileIdentity(data)

    def refuse(_: object) -> os.stat_result:
        raise PermissionError

    monkeypatch.setattr(os, "stat", refuse)
    assert files.trouble() is None
