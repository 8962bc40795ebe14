"""The log is copied beside the commits, and whatever goes wrong with that is no write's affair."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.checkpoints import BATCHES, PAGES, ROWS, Checkpoints
from spyweb.store.sqlite.damage import FileIdentity
from spyweb.store.sqlite.store import connect, open_store
from tests.fakes.clock import FakeClock
from tests.fakes.tables import make_table, numbers, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "numbers.db"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    connection = make_table(path)
    yield connection
    connection.close()


@pytest.fixture
async def checkpoints(path: Path, writer: sqlite3.Connection) -> AsyncIterator[Checkpoints]:
    async with stopped(
        Checkpoints(path, FileIdentity(path, reads_index=True), partial(connect, path, "rw"))
    ) as checkpoints:
        yield checkpoints


@asynccontextmanager
async def stopped(checkpoints: Checkpoints) -> AsyncIterator[Checkpoints]:
    yield checkpoints
    await checkpoints.stop()
    checkpoints.close()


def without_log(path: Path) -> list[int]:
    """What the database itself holds."""
    alone = path.with_name("alone.db")
    shutil.copy(path, alone)
    connection = sqlite3.connect(alone)
    found = numbers(connection)
    connection.close()
    return found


async def note(checkpoints: Checkpoints, rows: int) -> bool:
    """Whether that made it copy; it has, by now."""
    before = checkpoints._under_way
    checkpoints.note(rows)
    under_way = checkpoints._under_way
    if under_way is None or under_way is before:
        return False
    await under_way
    return True


async def test_after_so_many_rows_the_log_is_copied_and_the_writer_waits_for_nothing(
    path: Path, writer: sqlite3.Connection, checkpoints: Checkpoints
) -> None:
    put(writer, 1)
    assert not await note(checkpoints, ROWS - 1)
    writer.execute("BEGIN IMMEDIATE")
    put(writer, 2)
    assert await note(checkpoints, 1)

    assert without_log(path) == [1]
    writer.execute("COMMIT")


async def test_few_rows_of_large_values_are_copied_too_before_the_writer_has_to(
    writer: sqlite3.Connection, checkpoints: Checkpoints
) -> None:
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("CREATE TABLE large (value)")
    copied = []
    for _ in range(60):  # 4.1 kB hold 4,096 bytes, so 245 pages each
        writer.execute("INSERT INTO large VALUES (zeroblob(1000000))")
        copied.append(await note(checkpoints, 1))

    assert (PAGES // 245, BATCHES) == (20, 8)
    assert [number for number, was_copied in enumerate(copied, 1) if was_copied] == [24, 48]


async def test_where_the_length_of_the_log_can_not_be_read_rows_are_counted(
    writer: sqlite3.Connection, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    put(writer, 1)

    assert [await note(checkpoints, 1) for _ in range(BATCHES)] == [False] * BATCHES
    assert await note(checkpoints, ROWS)


async def test_rows_are_counted_anew_and_one_checkpoint_is_made_at_a_time(path: Path) -> None:
    begun: list[threading.Event] = []
    held = threading.Event()

    def connect_late() -> sqlite3.Connection:
        begun.append(held)
        assert held.wait(20)
        return connect(path, "rw")

    make_table(path).close()
    async with stopped(Checkpoints(path, FileIdentity(path, reads_index=True), connect_late)) as checkpoints:
        checkpoints.note(ROWS)
        first = checkpoints._under_way
        checkpoints.note(ROWS)
        assert checkpoints._under_way is first
        held.set()
        assert first
        await first
        assert await note(checkpoints, 1), "those that were committed meanwhile are not forgotten"
    assert len(begun) == 1


def refuse() -> sqlite3.Connection:
    raise sqlite3.OperationalError("no")


@pytest.mark.parametrize("connect", [refuse, partial(sqlite3.connect, "absent/x.db")])
async def test_a_checkpoint_that_fails_is_left_to_the_writer(
    path: Path, writer: sqlite3.Connection, connect: Callable[[], sqlite3.Connection]
) -> None:
    async with stopped(Checkpoints(path, FileIdentity(path, reads_index=True), connect)) as checkpoints:
        for _ in range(2):
            assert await note(checkpoints, ROWS)
    put(writer, 1)
    assert numbers(writer) == [1]


async def test_one_that_fails_as_nobody_expected_keeps_nothing_from_closing(
    path: Path, writer: sqlite3.Connection
) -> None:
    threads = threading.active_count()
    async with stopped(
        Checkpoints(path, FileIdentity(path, reads_index=True), Mock(side_effect=MemoryError))
    ) as checkpoints:
        checkpoints.note(ROWS)
    assert threading.active_count() == threads


async def test_where_no_thread_can_be_started_the_writer_goes_on(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        assert not await note(checkpoints, ROWS)
    assert await note(checkpoints, ROWS)


async def test_a_database_that_was_put_in_its_place_is_left_alone(
    path: Path, writer: sqlite3.Connection, checkpoints: Checkpoints
) -> None:
    put(writer, 1)
    restored = path.with_name("restored.db")
    make_table(restored).close()
    os.replace(restored, path)
    before = path.read_bytes()
    assert await note(checkpoints, ROWS)
    await checkpoints.stop()
    assert path.read_bytes() == before


async def test_nothing_is_left_of_it_and_stopping_twice_is_the_same(path: Path) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/dev/fd"))
    store = await open_store(path, clock=FakeClock())
    await asyncio.gather(*(store.values.set(GLOBAL, b"%d" % (number % 100), b"x") for number in range(ROWS * 2)))
    late = [store.values.set(GLOBAL, b"%d" % (number % 100), b"y") for number in range(ROWS * 2)]
    await asyncio.gather(store.close(), store.close())
    assert all(write.done() for write in late)

    assert (threading.active_count(), len(os.listdir("/dev/fd"))) == (threads, descriptors)
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}-lock"]
