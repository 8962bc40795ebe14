"""Rows of tasks go with their run, and with those of newer runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.model import RunId
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.store import Store, open_store
from spyweb.store.sqlite.tasks import MOST_ROWS, match_plan
from tests.fakes.changes import make_end
from tests.fakes.clock import FakeClock
from tests.fakes.task_rows import begin_run, row


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    yield store
    await store.close()


async def ended_run(store: Store, tasks: int = 1) -> RunId:
    run = await begin_run(store)
    await store.tasks.add(run, [row(f"t{ordinal}", ordinal) for ordinal in range(tasks)])
    await store.runs.record(Change(end=[make_end(run)]))
    return run


async def kept(store: Store, runs: list[RunId]) -> list[RunId]:
    return list(await store.tasks.of_runs(runs))


async def test_the_tasks_go_with_their_run(store: Store) -> None:
    runs = [await ended_run(store) for _ in range(3)]
    await store.runs.prune(keep=1, older_than_ms=0)

    assert await kept(store, runs) == runs[-1:]


async def test_the_tasks_of_the_newest_runs_stay(store: Store) -> None:
    runs = [await ended_run(store) for _ in range(2)]
    bare = await begin_run(store)  # without tasks, so it does not count
    runs.append(await ended_run(store))

    assert await store.tasks.prune(keep=2) == 1
    assert await kept(store, [*runs, bare]) == runs[1:]
    assert len(await store.runs.list(limit=9)) == 4
    assert await store.tasks.prune(keep=2) == 0


async def test_very_many_rows_do_not_go_at_once(store: Store) -> None:
    runs = [await ended_run(store, MOST_ROWS // 2) for _ in range(4)]

    assert await store.tasks.prune(keep=1) == 2
    assert await kept(store, runs) == [runs[0], runs[3]]
    assert await store.tasks.prune(keep=1) == 1


def test_of_several_rows_of_a_task_the_last_one_counts() -> None:
    (taken,) = match_plan([row("a", message="first"), row("a", message="last")], [("", "a")])
    assert taken.message == "last"
