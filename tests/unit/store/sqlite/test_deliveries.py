"""What becomes of a change event, in every kind of store: it stays for the runs that it has started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from spyweb.model import JobId, RunId, RunState
from spyweb.store.protocol import SCOPES, Change, Store, Watch
from tests.fakes.changes import NEWS, PRICES, make_end, make_run
from tests.fakes.clock import FakeClock
from tests.fakes.stores import KINDS, opened, put


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path / "spyweb.db", FakeClock()) as store:
        store.events.watch([Watch(namespace=SCOPES, is_prefix=True)])
        await put(store, b"a", b"first", namespace="scope:orders")
        await put(store, b"b", b"second", namespace="scope:orders")
        yield store


async def start(store: Store, *jobs: JobId, event: int = 1, delivered: bool = True) -> list[RunId]:
    new = [structs.replace(make_run(job, due_ms=None), event=event) for job in jobs]
    runs = await store.runs.record(Change(new=new, delivered=[event] if delivered else []))
    return [run for run in runs if run is not None]


async def end(store: Store, run: RunId, *, again: JobId | None = None) -> None:
    new = [structs.replace(make_run(again, due_ms=None, state=RunState.WAITING), event=1)] if again else []
    await store.runs.record(Change(end=[structs.replace(make_end(run), event=1)], new=new))


async def pending(store: Store) -> list[int]:
    return [event.id for event in await store.events.pending()]


async def test_a_delivered_event_is_pending_no_more_and_stays_until_its_runs_have_ended(store: Store) -> None:
    first, second = await start(store, PRICES, NEWS)
    assert await pending(store) == [2]
    await end(store, first)
    found = await store.events.find(1)
    assert found is not None
    assert (found.key, found.new) == (b"a", b"first")
    await end(store, second)

    assert await store.events.find(1) is None
    assert await pending(store) == [2]


async def test_a_retry_keeps_it(store: Store) -> None:
    (first,) = await start(store, PRICES)
    await end(store, first, again=PRICES)
    assert await store.events.find(1) is not None
    await end(store, RunId(first + 1))

    assert await store.events.find(1) is None


async def test_one_that_started_nothing_is_gone_at_once(store: Store) -> None:
    await store.runs.record(Change(delivered=[1, 2]))

    assert [await store.events.find(number) for number in (1, 2)] == [None, None]


async def test_one_that_has_more_runs_to_start_says_which_it_has_started(store: Store) -> None:
    (first,) = await start(store, PRICES, delivered=False)
    await end(store, first)
    (event, other) = await store.events.pending()
    assert (event.id, event.started, other.started) == (1, frozenset({PRICES}), frozenset[JobId]())
    (second,) = await start(store, NEWS)
    await end(store, second)

    assert await store.events.find(1) is None


async def test_ids_never_repeat(store: Store) -> None:
    await store.runs.record(Change(delivered=[1, 2]))
    await put(store, b"c", b"third", namespace="scope:orders")

    assert await pending(store) == [3]


async def test_a_restart_finds_what_was_delivered_to_runs_that_are_open(tmp_path: Path) -> None:
    for life in (1, 2):
        async with opened("sqlite", tmp_path / "spyweb.db", FakeClock()) as store:
            if life == 1:
                store.events.watch([Watch(namespace=SCOPES, is_prefix=True)])
                await put(store, b"a", {b"\xff": [1]}, namespace="scope:orders")
                await start(store, PRICES)
            else:
                found = await store.events.find(1)
                assert found is not None
                assert found.new == {b"\xff": [1]}
                assert await pending(store) == []


async def test_one_that_passes_a_job_says_so_as_long_as_it_is_pending(store: Store) -> None:
    await store.runs.record(Change(passed=[(1, NEWS)]))
    (event, _) = await store.events.pending()
    assert event.started == frozenset({NEWS})
    await store.runs.record(Change(passed=[(1, PRICES)], delivered=[1]))

    assert await store.events.find(1) is None
