"""What a write costs: one statement and no savepoint, unless something beside the entry is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.store.batch import Kind
from spyweb.store.protocol import Change, Watch
from spyweb.store.sqlite import SqliteStore, open_store
from tests.fakes.changes import make_end, start_run
from tests.fakes.clock import FakeClock
from tests.fakes.stores import LOGGED, RULES, adding, put, until_told


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock(), history=RULES)
    yield store
    await store.close()


async def trace(store: SqliteStore) -> list[str]:
    """The statements that the writer runs from now on, by their first two words."""
    seen: list[str] = []

    def note(statement: str) -> None:
        seen.append(" ".join(statement.split()[:2]))

    await store._lanes.writer.submit(Kind.READ, lambda connection: connection.set_trace_callback(note))
    return seen


def words(seen: list[str]) -> list[str]:
    return [statement for statement in seen if not statement.startswith(("BEGIN", "COMMIT"))]


async def test_a_plain_transform_reads_and_writes_once(store: SqliteStore) -> None:
    await put(store, b"k", 1)
    seen = await trace(store)

    first, second = (store.values.transform("state", b"k", adding(1)) for _ in range(2))
    await first
    await second

    assert words(seen) == ["SELECT type,", "UPDATE entry"] * 2


async def test_a_transform_that_leaves_a_trail_has_a_savepoint(store: SqliteStore) -> None:
    store.events.watch([Watch(namespace=LOGGED)])
    await put(store, b"k", 1, namespace=LOGGED)
    seen = await trace(store)

    first, second = (store.values.transform(LOGGED, b"k", adding(1)) for _ in range(2))
    await first
    await second

    assert words(seen)[:7] == [
        "SAVEPOINT op",
        "SELECT type,",
        "UPDATE entry",
        "REPLACE INTO",
        "DELETE FROM",
        "INSERT INTO",
        "RELEASE op",
    ]


async def test_only_the_end_of_a_run_that_took_a_lock_looks_for_locks(store: SqliteStore) -> None:
    plain, holding = await start_run(store, due_ms=1), await start_run(store, due_ms=2)
    await store.locks.acquire(b"l", b"me", holding, 1000)
    seen = await trace(store)

    await store.runs.record(Change(end=[make_end(plain)]))
    assert words(seen) == ["UPDATE run"]
    seen.clear()

    await store.runs.record(Change(end=[make_end(holding)]))
    assert "DELETE FROM" in words(seen)
    await until_told()
    seen.clear()

    await store.runs.record(Change(end=[make_end(holding)]))
    assert words(seen) == ["UPDATE run"]
