"""A database that has lost a part is refused as it is, before SQLite tidies the rest away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.model import Durability, Value
from spyweb.store.protocol import GLOBAL
from spyweb.store.sqlite.store import open_store
from tests.fakes.clock import FakeClock

FRAME = 24 + 4096


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """The files that a daemon leaves behind that was killed: three writes are in the log alone."""
    files = tmp_path / "running" / "spyweb.db"
    files.parent.mkdir()
    path = tmp_path / "data" / "spyweb.db"
    path.parent.mkdir()
    store = await open_store(files, clock=FakeClock())
    await store.close()
    store = await open_store(files, clock=FakeClock())
    for key in (b"a", b"b", b"c"):
        await store.values.set(GLOBAL, key, b"1")
    for suffix in ("", "-wal"):
        shutil.copy2(f"{files}{suffix}", f"{path}{suffix}")
    await store.close()
    return path


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def contents(path: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in path.parent.iterdir()
        if not file.name.endswith(("-shm", "-lock")) and file.stat().st_size
    }


def overwrite(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


async def read(path: Path, key: bytes = b"c") -> Value:
    store = await open_store(path, clock=FakeClock())
    try:
        return await store.values.get(GLOBAL, key)
    finally:
        await store.close()


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def shorten(path: Path) -> None:
    os.truncate(path, 4096)


def ruin_header(path: Path) -> None:
    overwrite(wal_of(path), 0, b"\xff" * 32)


def ruin_all(path: Path) -> None:
    overwrite(wal_of(path), 0, os.urandom(wal_of(path).stat().st_size))


def ruin_all_frames(path: Path) -> None:
    overwrite(wal_of(path), 32, b"\x55" * (wal_of(path).stat().st_size - 32))


def ruin_first_page(path: Path) -> None:
    overwrite(wal_of(path), 32 + 24 + 100, b"\x55" * 1000)


async def test_what_a_killed_daemon_leaves_is_taken_up(killed: Path) -> None:
    assert await read(killed) == b"1"


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("lose", [remove, empty, shorten, ruin_header, ruin_all, ruin_all_frames, ruin_first_page])
async def test_a_database_without_one_of_its_parts_is_refused_and_nothing_is_touched(
    killed: Path, lose: Callable[[Path], None], read_only: bool
) -> None:
    lose(killed)
    before = contents(killed)

    with pytest.raises(StoreIncomplete, match="spyweb start --repair"):
        await open_store(killed, clock=FakeClock(), read_only=read_only)

    assert contents(killed) == before


async def test_damage_is_refused_without_moving_the_log_into_it(killed: Path) -> None:
    with killed.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\x55" * (killed.stat().st_size - 8 * 4096))
    before = contents(killed)

    with pytest.raises(StoreCorrupt):
        await read(killed)

    assert contents(killed) == before


async def test_a_file_that_is_no_database_keeps_its_log(killed: Path) -> None:
    killed.write_bytes(b"dear diary, " * 4096)
    before = contents(killed)

    with pytest.raises(StoreCorrupt, match="not a database"):
        await read(killed)

    assert contents(killed) == before


async def test_a_log_of_one_unfinished_commit_is_no_loss(killed: Path) -> None:
    """As a power cut leaves it: nothing of it was acknowledged."""
    os.truncate(wal_of(killed), 32 + FRAME)
    overwrite(wal_of(killed), 32 + 24 + 100, b"\x55" * 1000)

    assert await read(killed) is None


async def test_a_log_that_had_just_begun_anew_is_no_loss(killed: Path) -> None:
    """Its header is written, its first frame is still that of the round before."""
    begun = bytearray(wal_of(killed).read_bytes())
    salt = int.from_bytes(begun[16:20], "big")
    begun[32 + 8 : 32 + 12] = (salt - 1).to_bytes(4, "big")
    wal_of(killed).write_bytes(begun)

    assert await read(killed) is None


@pytest.mark.parametrize("length", [0, 7])
async def test_a_log_that_had_not_begun_is_no_loss(killed: Path, length: int) -> None:
    os.truncate(wal_of(killed), length)

    assert await read(killed) is None


async def test_pages_that_a_broken_off_checkpoint_left_in_the_log_are_no_loss(tmp_path: Path) -> None:
    """It has written the first page, which tells the new size, and not yet the new pages."""
    files, path = tmp_path / "a.db", tmp_path / "b.db"
    store = await open_store(files, clock=FakeClock(), durability=Durability.NORMAL)
    await store.close()
    store = await open_store(files, clock=FakeClock())
    await store.values.set(GLOBAL, b"c", b"1" * 100_000)
    for suffix in ("", "-wal"):
        shutil.copy2(f"{files}{suffix}", f"{path}{suffix}")
    await store.close()
    overwrite(path, 0, files.read_bytes()[:4096])

    assert await read(path) == b"1" * 100_000


async def test_no_database_and_no_log_is_a_new_one(tmp_path: Path) -> None:
    assert await read(tmp_path / "spyweb.db") is None


async def test_an_empty_file_without_a_log_becomes_one(tmp_path: Path) -> None:
    (tmp_path / "spyweb.db").touch()

    assert await read(tmp_path / "spyweb.db") is None
