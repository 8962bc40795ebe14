"""What becomes of a change event, in every kind of store: it stays for the runs that it has started."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest
from msgspec import structs

from spyweb.model import JobId, RunId, RunState
from spyweb.store.model.entries import SCOPES, Watch
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.migrate import load_migrations, migrate
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import NEWS, PRICES, make_end, make_run, waiting
from tests.fakes.clock import FakeClock
from tests.fakes.stores import KINDS, opened, put

WATCHES = [Watch(job=job, namespace=SCOPES, is_prefix=True) for job in (PRICES, NEWS)]


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path / "spyweb.db", FakeClock()) as store:
        store.events.watch(WATCHES)
        await put(store, b"a", b"first", namespace="scope:orders")
        await put(store, b"b", b"second", namespace="scope:orders")
        yield store


async def start(store: Store, *jobs: JobId, event: int = 1) -> list[RunId]:
    new = [structs.replace(make_run(job, due_ms=None), event=event) for job in jobs]
    return [run for run in await store.runs.record(Change(new=new)) if run is not None]


async def end(store: Store, run: RunId, *, again: JobId | None = None) -> list[RunId | None]:
    retry = make_run(again, due_ms=None, state=RunState.WAITING) if again else None
    new = [structs.replace(retry, event=1, follows=run)] if retry else []
    return await store.runs.record(Change(end=[structs.replace(make_end(run), event=1)], new=new))


async def drop(store: Store, *parts: tuple[JobId, int]) -> None:
    dropped = [each for each in await waiting(store) if (each.job, each.event) in parts]
    assert len(dropped) == len(parts)
    await store.runs.record(Change(dropped=dropped))


async def left(store: Store) -> list[tuple[str, int]]:
    return [(each.job, each.event) for each in await store.events.wanted(10)]


async def test_an_event_that_was_handed_out_stays_until_its_runs_have_ended(store: Store) -> None:
    first, second = await start(store, PRICES, NEWS)
    assert await left(store) == [(NEWS, 2), (PRICES, 2)]
    await end(store, first)
    found = await store.events.find(1)
    assert found is not None
    assert (found.key, found.new) == (b"a", b"first")
    await end(store, second)

    assert await store.events.find(1) is None
    assert await left(store) == [(NEWS, 2), (PRICES, 2)]


async def test_a_retry_keeps_it(store: Store) -> None:
    await drop(store, (NEWS, 1))
    (first,) = await start(store, PRICES)
    (second,) = await end(store, first, again=PRICES)
    assert await store.events.find(1) is not None
    assert second is not None
    assert await end(store, first, again=PRICES) == [None], "it had ended before"
    assert await store.events.find(1) is not None
    await end(store, second)

    assert await store.events.find(1) is None


async def test_one_that_starts_nothing_is_gone_at_once(store: Store) -> None:
    await drop(store, (NEWS, 1), (PRICES, 1), (PRICES, 2))

    assert await store.events.find(1) is None
    assert await left(store) == [(NEWS, 2)]


async def test_one_that_has_another_run_to_start_stays(store: Store) -> None:
    (first,) = await start(store, PRICES)
    await end(store, first)
    assert await left(store) == [(NEWS, 1), (NEWS, 2), (PRICES, 2)]
    (second,) = await start(store, NEWS)
    await end(store, second)

    assert await store.events.find(1) is None


async def test_ids_never_repeat(store: Store) -> None:
    await drop(store, *[(job, event) for job in (PRICES, NEWS) for event in (1, 2)])
    await put(store, b"c", b"third", namespace="scope:orders")

    assert await left(store) == [(NEWS, 3), (PRICES, 3)]


async def test_a_restart_finds_the_event_of_a_run_that_is_open(tmp_path: Path) -> None:
    for life in (1, 2):
        async with opened("sqlite", tmp_path / "spyweb.db", FakeClock()) as store:
            if life == 1:
                store.events.watch(WATCHES[:1])
                await put(store, b"a", {b"\xff": [1]}, namespace="scope:orders")
                await start(store, PRICES)
            else:
                found = await store.events.find(1)
                assert found is not None
                assert found.new == {b"\xff": [1]}
                assert await left(store) == []


# Events from before there was a row for each job that wants one

OLD_EVENTS = """
    INSERT INTO event (id, namespace, key, kind, new_version, new_type, new_value, at_ms, depth, delivered)
    VALUES (?, 'scope:orders', ?, 'created', 1, 'i', ?, 5, 0, ?)
"""
OLD_RUNS = "INSERT INTO run (id, job, state, attempt, \"trigger\") VALUES (?, ?, ?, 1, '{}')"
OLD_STARTED = "INSERT INTO started (event, job, run) VALUES (?, ?, ?)"
PASSED = 0  # in the place of a run


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """As an earlier spyweb left it: event 1 is with runs alone, of the others each has been given to some jobs."""
    path = tmp_path / "spyweb.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        migrate(database, path, load_migrations()[:5], 0)
        database.executemany(OLD_EVENTS, [(event, b"%d" % event, event, event == 1) for event in range(1, 6)])
        runs = [(1, PRICES, "running"), (2, NEWS, "ended"), (3, PRICES, "ended"), (4, PRICES, "waiting")]
        database.executemany(OLD_RUNS, runs)
        started = [(1, PRICES, 1), (1, NEWS, 2), (2, PRICES, 3), (3, PRICES, 4), (5, PRICES, PASSED)]
        database.executemany(OLD_STARTED, started)
    return path


def opened_old(path: Path) -> AbstractAsyncContextManager[Store]:
    return opened("sqlite", path, FakeClock())


def count_rows(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("event", "wanted")]


async def handle_all(store: Store) -> list[tuple[str, int, object]]:
    """Claim a run for each change that waits, and let it end; gives the new values."""
    handled: list[tuple[str, int, object]] = []
    for job, event in await left(store):
        (run,) = await start(store, JobId(job), event=event)
        found = await store.events.find(event)
        assert found
        handled.append((job, event, found.new))
        await store.runs.record(Change(end=[structs.replace(make_end(run), event=event)]))
    return handled


async def end_old_runs(store: Store) -> None:
    for run, event in ((RunId(1), 1), (RunId(4), 3)):
        await store.runs.record(Change(end=[structs.replace(make_end(run), event=event)]))


async def test_after_an_upgrade_each_job_gets_what_it_has_not_had(old: Path) -> None:
    async with opened_old(old) as store:
        store.events.watch(WATCHES, all_known=True)
        assert (await store.events.find(1)) is not None
        assert [(run.id, run.state) for run in await store.runs.open()] == [(1, "running"), (4, "waiting")]

        handled = await handle_all(store)
        assert handled == [*((NEWS, event, event) for event in (2, 3, 4, 5)), (PRICES, 4, 4)]
        await end_old_runs(store)
        assert await left(store) == []
    assert count_rows(old) == [0, 0]


async def test_after_an_upgrade_what_a_job_wants_whose_file_is_broken_waits_and_the_other_gets_it_once(
    old: Path,
) -> None:
    for life in (1, 2):
        async with opened_old(old) as store:
            store.events.watch([watch for watch in WATCHES if watch.job == PRICES], all_known=False)
            assert await handle_all(store) == ([(PRICES, 4, 4)] if life == 1 else [])
            await end_old_runs(store)
    async with opened_old(old) as store:
        store.events.watch(WATCHES, all_known=True)
        assert await handle_all(store) == [(NEWS, event, event) for event in (2, 3, 4, 5)]
    assert count_rows(old) == [0, 0]


async def test_after_an_upgrade_what_nobody_asks_for_any_more_is_gone(old: Path) -> None:
    async with opened_old(old) as store:
        store.events.watch([], all_known=True)
        assert await left(store) == []
        assert [await store.events.find(event) is not None for event in range(1, 6)] == [
            True,
            False,
            True,
            False,
            False,
        ]
        await end_old_runs(store)
    assert count_rows(old) == [0, 0]
