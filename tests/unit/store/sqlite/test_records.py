"""Records in SQLite: what reaches the disk, and what scripts see of them in SQL."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.store.model.entries import GLOBAL
from spyweb.store.model.records import RecordFilter
from spyweb.store.sqlite import records
from spyweb.store.sqlite.pruning import SLICE
from spyweb.store.sqlite.store import Store, open_store
from spyweb.store.user_sql.views import RECORDS_VIEW
from tests.fakes.changes import NEWS, PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.findings import item, listed


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    store = await open_store(path, clock=FakeClock())
    yield store
    await store.close()


def log_bytes(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TEMP VIEW records AS {RECORDS_VIEW}")
        return connection.execute(sql).fetchall()


async def test_a_page_without_news_writes_nothing(store: Store, path: Path) -> None:
    page = [item(str(number)) for number in range(30)]
    await store.records.add(PRICES, page)
    before = log_bytes(path)

    for _ in range(20):
        await store.records.add(PRICES, page)

    assert log_bytes(path) == before


async def test_scripts_see_the_newest_first_without_asking(store: Store, path: Path) -> None:
    await store.records.add(PRICES, [item("a"), item("b")])
    await store.records.add(NEWS, [item("c")])
    await store.records.add(PRICES, [item("d")])

    of_job = query(path, "SELECT json FROM records WHERE job_id = 'prices' LIMIT 2")
    of_all = query(path, "SELECT json FROM records")
    assert [json.loads(str(text))["title"] for (text,) in of_job] == ["d", "b"]
    assert [json.loads(str(text))["title"] for (text,) in of_all] == ["d", "c", "b", "a"]


async def test_scripts_see_each_field_at_top_level_and_the_record_around_it(store: Store, path: Path) -> None:
    await store.records.add(PRICES, [item("tea", matches=["sale"], hash="mine", fields="mine", price="1 €")])
    ((job, rev_ts, text),) = query(path, "SELECT job_id, rev_ts, json FROM records")

    timestamp_ns = FakeClock().now_ms() * 1_000_000
    assert (job, rev_ts) == ("prices", (1 << 63) - 1 - timestamp_ns)
    assert json.loads(str(text)) == {
        "title": "tea",
        "price": "1 €",
        "fields": {"title": "tea", "hash": "mine", "fields": "mine", "price": "1 €"},
        "match_key": ["sale"],
        "page_url": "https://shop.example/",
        "job_id": "prices",
        "date_time": "2026-01-01T00:00:00.000Z",
        "timestamp": timestamp_ns,
        "hash": b"tea".hex(),
    }


@pytest.mark.parametrize("job", ["WHERE job_id = 'prices' ", ""])
async def test_the_newest_records_are_found_without_sorting(store: Store, path: Path, job: str) -> None:
    plan = query(path, f"EXPLAIN QUERY PLAN SELECT json FROM records {job}LIMIT 5")

    assert not any("TEMP B-TREE" in str(step) for step in plan)


async def test_pruning_works_in_slices_over_all_jobs(store: Store) -> None:
    for job in (PRICES, NEWS):
        await store.records.add(job, [item(str(number)) for number in range(2 * SLICE)])
    batches = store.stats().batches

    async with asyncio.TaskGroup() as tasks:
        moment_ms = FakeClock().now_ms() + 1
        pruning = tasks.create_task(
            store.records.prune(keep=10, older_than_ms=None, unseen_since_ms=moment_ms), name="prune"
        )
        while not pruning.done():
            await store.values.set(GLOBAL, b"k", b"other writes go on")

    assert pruning.result() == 2 * (2 * SLICE - 10)
    assert store.stats().batches > batches + 4
    assert len(await listed(store, PRICES)) == len(await listed(store, NEWS)) == 10
    assert all(await store.records.add(PRICES, [item("0")]))


async def test_a_search_that_finds_little_says_how_far_it_looked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SEARCHED", 10)
    await store.records.add(PRICES, [item(str(number)) for number in range(25)])

    before_ns, pages = None, 0
    while True:
        page = await store.records.search(RecordFilter(text="nothing"), limit=5, before_ns=before_ns)
        before_ns, pages = page.before_ns, pages + 1
        assert page.records == []
        if before_ns is None:
            break
    assert pages == 3
