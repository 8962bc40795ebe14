"""A full disk fails only the writes that do not fit, and is over when there is room again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.errors import StoreError
from spyweb.model import OnStoreError, Outcome
from spyweb.store.model.entries import GLOBAL
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.changes import make_cursor, make_run
from tests.fakes.full_disk import file_size_limit
from tests.fakes.scripts import open_scripts

SMALL, LARGE = b"v" * 10, b"v" * 1_000_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(tmp_path / "spyweb.db", clock=RealClock())
    yield store
    await store.close()


def limit_pages(connection: sqlite3.Connection, more: int) -> None:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + more}")


async def write_beside_one_that_does_not_fit(store: Store) -> list[object]:
    results = await asyncio.gather(
        store.values.set(GLOBAL, b"before", SMALL),
        store.runs.record(Change(new=[make_run()], cursors=[make_cursor()])),
        store.values.set(GLOBAL, b"large", LARGE),
        store.values.increment(GLOBAL, b"counter", 0, 1),
        store.values.set(GLOBAL, b"after", SMALL),
        return_exceptions=True,
    )
    return list(results)


async def assert_only_the_large_one_is_missing(store: Store, results: list[object]) -> None:
    assert isinstance(results.pop(2), StoreError)
    assert results == [None, [1], 1, None]
    assert await store.values.get(GLOBAL, b"before") == SMALL
    assert await store.values.get(GLOBAL, b"after") == SMALL
    assert await store.values.get(GLOBAL, b"large") is None
    assert await store.values.get(GLOBAL, b"counter") == b"1"
    assert [run.id for run in await store.runs.open()] == [1]


async def test_a_database_at_its_limit_refuses_only_what_does_not_fit(store: Store) -> None:
    await store._connections.writer.submit(OpKind.READ, limit_pages, 20)

    results = await write_beside_one_that_does_not_fit(store)

    assert "no room left" in str(results[2])
    assert store.stats().errors == 1
    await assert_only_the_large_one_is_missing(store, results)


async def test_a_disk_that_takes_no_more_refuses_only_what_does_not_fit(store: Store, tmp_path: Path) -> None:
    await store.values.set(GLOBAL, b"first", SMALL)
    log_size = (tmp_path / "spyweb.db-wal").stat().st_size

    with file_size_limit(log_size + 200_000):
        results = await write_beside_one_that_does_not_fit(store)

    await assert_only_the_large_one_is_missing(store, results)


@pytest.mark.parametrize("on_error", OnStoreError)
async def test_a_script_whose_write_does_not_fit_is_marked_and_fails_where_the_settings_say_so(
    tmp_path: Path, on_error: OnStoreError
) -> None:
    async with open_scripts(tmp_path) as scripts:
        scripts.world = replace(scripts.world, on_store_error=on_error)
        await scripts.succeed('store_set("k", "v")')
        log_size = (tmp_path / "spyweb.db-wal").stat().st_size
        with file_size_limit(log_size + 200_000):
            ending = await scripts.run('store_set("k", ("x"):rep(1000000)) return "went on"')
        kept = await scripts.succeed('return store_get("k")')

    assert kept == b"v"
    assert scripts.world.metrics.storage_errors == {"store_set": 1}
    if on_error is OnStoreError.RAISE:
        assert ending.outcome is Outcome.FAILED
        assert "jobs/a.lua:1: store_set: " in ending.reason
        assert "no room left" in ending.reason or "I/O error" in ending.reason
    else:
        assert ending.result == b"went on"


async def test_when_there_is_room_again_writing_goes_on(store: Store) -> None:
    await store._connections.writer.submit(OpKind.READ, limit_pages, 20)
    with pytest.raises(StoreError, match="no room left"):
        await store.values.set(GLOBAL, b"large", LARGE)

    await store._connections.writer.submit(OpKind.READ, limit_pages, 10_000)
    await store.values.set(GLOBAL, b"large", LARGE)

    assert await store.values.get(GLOBAL, b"large") == LARGE
