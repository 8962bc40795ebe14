"""Pruning works in slices, so that other writes get between them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from spyweb.model import JobId
from spyweb.store.model.entries import GLOBAL
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.pruning import SLICE
from spyweb.store.sqlite.store import open_store
from tests.fakes.changes import make_end, make_run
from tests.fakes.clock import FakeClock

JOBS = [JobId(f"job{number}") for number in range(3)]
RUNS_OF_EACH = SLICE


async def test_pruning_works_in_slices_over_all_jobs(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    new = [make_run(job, due_ms=due_ms) for due_ms in range(RUNS_OF_EACH) for job in JOBS]
    runs = await store.runs.record(Change(new=new))
    await store.runs.record(Change(end=[make_end(run) for run in runs if run is not None]))
    batches = store.stats().batches

    async with asyncio.TaskGroup() as tasks:
        pruning = tasks.create_task(store.runs.prune(keep=10, older_than_ms=0))
        while not pruning.done():
            await store.values.set(GLOBAL, b"k", b"other writes go on")

    assert pruning.result() == len(JOBS) * (RUNS_OF_EACH - 10)
    assert store.stats().batches > batches + len(JOBS)
    for job in JOBS:
        assert [run.due_ms for run in await store.runs.list(job, limit=99)] == [
            RUNS_OF_EACH - 1 - age for age in range(10)
        ]
    await store.close()
