"""Opening the store: as it is asked for, or not at all, with one clear line."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.errors import NoAccess, StoreCorrupt, StoreError, StoreNewer
from spyweb.model import Durability
from spyweb.settings.load import load_settings
from spyweb.store.marker import Marker
from spyweb.store.model.entries import GLOBAL
from spyweb.store.model.runs import Change
from spyweb.store.opening import open_any
from spyweb.store.sqlite import store as sqlite
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.store import Store, open_store, open_up_to_date
from spyweb.subjects.health.views import find_problems
from tests.fakes.changes import make_cursor, make_run
from tests.fakes.clock import FakeClock
from tests.fakes.stores import LOGGED, RULES, put


def pragma(connection: sqlite3.Connection, name: str) -> object:
    row: tuple[object, ...] = connection.execute(f"PRAGMA {name}").fetchone()
    return row[0]


@pytest.mark.parametrize(("durability", "synchronous"), [(Durability.FULL, 2), (Durability.NORMAL, 1)])
def test_durability_decides_when_the_log_is_synced(path: Path, durability: Durability, synchronous: int) -> None:
    connection = open_up_to_date(path, durability, 0)

    assert pragma(connection, "journal_mode") == "wal"
    assert pragma(connection, "synchronous") == synchronous
    connection.close()


async def test_a_change_that_fails_leaves_nothing_of_itself_and_its_neighbours_alone(path: Path) -> None:
    store = await open_store(path, clock=FakeClock())
    unwritable = make_cursor(due_ms=None)  # type: ignore[arg-type]

    before = store.values.set(GLOBAL, b"before", b"1")
    torn = store.runs.record(Change(new=[make_run()], cursors=[unwritable]))
    after = store.values.set(GLOBAL, b"after", b"1")

    with pytest.raises(StoreError, match="NOT NULL constraint failed"):
        await torn
    await before
    await after
    assert store.stats().batches == 1
    assert await store.runs.list() == []
    await store.close()


# Read-only


async def test_without_a_database_there_is_nothing_to_read(path: Path) -> None:
    with pytest.raises(StoreError, match=f"{path}: there is no database yet"):
        await open_store(path, clock=FakeClock(), read_only=True)

    assert not path.exists()


async def test_a_reader_reads_what_a_stopped_daemon_has_left_and_changes_nothing(path: Path) -> None:
    daemon = await open_store(path, clock=FakeClock())
    await daemon.values.set(GLOBAL, b"k", b"1")
    await daemon.close()
    before = path.read_bytes()

    reader = await open_store(path, clock=FakeClock(), read_only=True)

    assert await reader.values.get(GLOBAL, b"k") == b"1"
    with pytest.raises(StoreError, match="readonly"):
        await reader.values.set(GLOBAL, b"k", b"2")
    with pytest.raises(StoreError, match="readonly"):
        await reader.values.increment(GLOBAL, b"k", 0, 1)
    await reader.close()
    assert path.read_bytes() == before


async def test_a_reader_does_not_migrate(path: Path) -> None:
    sqlite3.connect(path).close()
    path.touch()

    with pytest.raises(StoreError, match="older spyweb"):
        await open_store(path, clock=FakeClock(), read_only=True)


# What can't be opened


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_newer_database_is_refused(path: Path, read_only: bool) -> None:
    await (await open_store(path, clock=FakeClock())).close()
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO migration VALUES (9999, '9999_from_the_future', 0)")
    connection.commit()
    connection.close()

    with pytest.raises(StoreNewer, match="9999_from_the_future"):
        await open_store(path, clock=FakeClock(), read_only=read_only)


async def test_a_folder_that_is_absent_is_one_clear_line(path: Path) -> None:
    absent = path.parent / "absent" / "spyweb.db"

    with pytest.raises(StoreError, match=f"{absent}: No such file or directory"):
        await open_store(absent, clock=FakeClock())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_a_database_of_somebody_else_says_whose_it_is(path: Path) -> None:
    await (await open_store(path, clock=FakeClock())).close()
    os.seteuid(65534)
    try:
        with pytest.raises(NoAccess, match="it belongs to root"):
            await open_store(path, clock=FakeClock())
    finally:
        os.seteuid(0)


async def test_a_database_locked_by_another_process_is_one_clear_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 0)
    store = await open_store(path, clock=FakeClock())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreError, match="another process has locked the database"):
        await store.values.set(GLOBAL, b"k", b"1")
    assert await store.values.get(GLOBAL, b"k") is None

    other.close()
    await store.values.set(GLOBAL, b"k", b"1")
    await store.close()


async def test_when_the_second_connection_fails_the_first_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threading.active_count()

    connect = sqlite.connect

    def refuse_to_read(path: Path, mode: str = "rwc") -> sqlite3.Connection:
        if mode == "ro":
            raise sqlite3.OperationalError("no more files")
        return connect(path, mode)

    monkeypatch.setattr(sqlite, "connect", refuse_to_read)
    with pytest.raises(StoreError, match="no more files"):
        await open_store(path, clock=FakeClock())

    assert threading.active_count() == threads


async def truncate_the_log(store: Store, path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


async def overwrite_pages(store: Store, path: Path) -> None:
    await store._connections.writer.submit(OpKind.READ, lambda connection: connection.execute("PRAGMA wal_checkpoint"))
    with path.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\xa5" * (path.stat().st_size - 2 * 4096))


@pytest.mark.parametrize("harm", [truncate_the_log, overwrite_pages])
async def test_damage_met_while_running_stops_writing_and_is_told_once_with_the_way_out(
    path: Path, harm: Callable[[Store, Path], Awaitable[None]]
) -> None:
    store = await open_store(path, clock=FakeClock())
    for number in range(50):
        await store.values.set(GLOBAL, b"%d" % number, b"x" * 200)
    await harm(store, path)

    with capture_logs() as told:
        for _ in range(3):
            for asked in (store.runs.open, store.runs.latest):
                with suppress(StoreCorrupt):
                    await asked()
        with pytest.raises(StoreCorrupt, match=r"damaged.*--repair"):
            await store.runs.record(Change(new=[make_run()]))

    assert [line["log_level"] for line in told] == ["error"]
    assert f"{path}: the database is damaged" in told[0]["reason"]
    assert any("damaged" in problem for problem in find_problems(0, store.stats()))
    await store.close()


async def test_a_database_whose_folder_is_missing_is_one_clear_line(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={"SPYWEB_STORE_URL": f"sqlite:///{tmp_path}/a/b.db"}, flags={})
    with pytest.raises(StoreError, match=f"^{tmp_path}/a/b.db: there is no folder {tmp_path}/a: make it"):
        await open_any(settings, clock=FakeClock(), marker=Marker(tmp_path, tmp_path / "b.db", FakeClock()))
    assert list(tmp_path.iterdir()) == []


async def test_memory_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(tmp_path, environ={"SPYWEB_STORE_URL": "memory:"}, flags={})
    settings = replace(settings, state=replace(settings.state, history=RULES))
    store = await open_any(settings, clock=FakeClock(), marker=Marker(tmp_path, tmp_path / "b.db", FakeClock()))
    await put(store, b"k", 1, namespace=LOGGED)
    await put(store, b"k", 2, namespace=LOGGED)

    assert store.stats().path == ":memory:"
    assert len(await store.values.history(LOGGED, b"k")) == 2
    await store.close()
    assert list(tmp_path.iterdir()) == []
