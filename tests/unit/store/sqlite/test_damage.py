"""Damage is found when the file is opened, or when a bad page is met; and the file is only ever moved."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite import damage
from spyweb.store.sqlite.damage import move_aside, was_killed
from spyweb.store.sqlite.store import open_store
from tests.fakes.clock import FakeClock

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


async def test_a_sound_file_opens(path: Path) -> None:
    assert not was_killed(path)
    store = await open_store(path, clock=FakeClock())

    assert await store.values.get(GLOBAL, b"k1") == b"v" * 500
    await store.close()


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
async def killed(tmp_path: Path) -> Path:
    """The files that a daemon leaves behind that was killed: three writes are in the log alone."""
    files = tmp_path / "running" / "spyweb.db"
    files.parent.mkdir()
    path = tmp_path / "data" / "spyweb.db"
    path.parent.mkdir()
    await (await open_store(files, clock=FakeClock())).close()
    store = await open_store(files, clock=FakeClock())
    for key in (b"a", b"b", b"c"):
        await store.values.set(GLOBAL, key, b"1")
    for suffix in ("", "-wal"):
        shutil.copy2(f"{files}{suffix}", f"{path}{suffix}")
    await store.close()
    return path


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def shorten(path: Path) -> None:
    os.truncate(path, 4096)


def overwrite(path: Path) -> None:
    path.write_bytes(b"dear diary, " * 4096)


def ruin_pages(path: Path) -> None:
    ruin(path, 0.15, 1)


# What is only read is not checked first.
@pytest.mark.parametrize(
    ("lose", "read_only"), [*product([remove, empty, shorten, overwrite], [False, True]), (ruin_pages, False)]
)
async def test_a_missing_or_damaged_database_keeps_the_log_of_a_killed_daemon(
    killed: Path, lose: Callable[[Path], None], read_only: bool
) -> None:
    lose(killed)
    before = contents(killed)

    with pytest.raises((StoreIncomplete, StoreCorrupt), match="spyweb start --repair"):
        await open_store(killed, clock=FakeClock(), read_only=read_only)

    assert contents(killed) == before


def contents(path: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in path.parent.iterdir()
        if not file.name.endswith(("-shm", "-lock")) and file.stat().st_size
    }


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


async def test_damage_met_while_running_is_named_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "CHECKED_ALWAYS_BYTES", 0)
    ruin(path, 0.3, 0.9)
    store = await open_store(path, clock=FakeClock())

    found = [store.values.get(GLOBAL, b"k%d" % number) for number in range(ENTRIES)]
    errors = [error for each in found if (error := await outcome(each))]

    assert errors
    assert {type(error) for error in errors} == {StoreCorrupt}
    await store.close()


async def outcome(future: object) -> BaseException | None:
    try:
        await future  # type: ignore[misc]
    except StoreCorrupt as error:
        return error
    return None


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

    aside = move_aside(path, clock=FakeClock())

    assert aside.name == "spyweb.db.corrupt-20260101T000000000Z"
    assert aside.read_bytes() == before
    left = sorted(file.name for file in path.parent.iterdir())
    assert left == ["spyweb.db-lock", aside.name, f"{aside.name}-shm", f"{aside.name}-wal"]
    store = await open_store(path, clock=FakeClock())
    assert await store.values.get(GLOBAL, b"k1") is None
    await store.close()
    copy = sqlite3.connect(aside)
    assert copy.execute("SELECT count(*) FROM entry").fetchone() == (ENTRIES,)
    copy.close()
