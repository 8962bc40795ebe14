"""The outbox in SQLite: what waits is there after opening again, and is found without walking over all of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.store.sqlite.outbox import EARLIEST, IN_TURN, NEXT_TARGET
from spyweb.store.sqlite.pruning import SLICE
from spyweb.store.sqlite.store import open_store
from tests.fakes.clock import FakeClock
from tests.fakes.findings import DESKTOP, HOOK, message


async def test_what_waits_is_there_after_opening_again(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path / "spyweb.db", clock=clock)
    (first,) = await store.outbox.add([message("1")])
    await store.outbox.put_off(first, next_ms=clock.now_ms() + 7000, error="answered 503", holds=True)
    before = await store.outbox.next(HOOK, clock.now_ms())
    await store.close()
    store = await open_store(tmp_path / "spyweb.db", clock=clock)

    assert await store.outbox.targets() == [HOOK]
    assert await store.outbox.next(HOOK, clock.now_ms()) == before
    await store.close()


@pytest.mark.parametrize(
    ("statement", "values"),
    [(NEXT_TARGET, ("", "")), (IN_TURN, ("webhook", "x", 0)), (EARLIEST, ("webhook", "x"))],
)
async def test_what_is_next_is_found_by_the_index(tmp_path: Path, statement: str, values: tuple[object, ...]) -> None:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    await store.close()
    with closing(sqlite3.connect(tmp_path / "spyweb.db")) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()

    assert "SEARCH message USING" in plan[0][3]


async def test_pruning_works_in_slices(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path / "spyweb.db", clock=clock)
    for number in await store.outbox.add([message(target=DESKTOP)] * (SLICE + 1)):
        store.outbox.give_up(number, error="")
    batches = store.stats().batches

    assert await store.outbox.prune(older_than_ms=clock.now_ms() + 1) == SLICE + 1
    assert store.stats().batches >= batches + 4
    await store.close()
