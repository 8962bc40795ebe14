"""The records of runs' ops, in every kind of store: written with the end of a run, few of a job, gone with the run."""

from __future__ import annotations

from msgspec.structs import replace

from spyweb.model import JobId, RunId
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.runs import RECORDS_KEPT
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import NEWS, PRICES, make_end, start_run


async def end(store: Store, job: JobId = PRICES, data: bytes = b"\0ops\xff") -> RunId:
    run = await start_run(store, job, due_ms=None)
    await store.runs.record(Change(end=[replace(make_end(run), record=store.past_runs.seal(run, data))]))
    return run


async def test_a_record_is_found_by_its_run_as_it_was(store: Store) -> None:
    run, other = await end(store), await start_run(store, due_ms=None)

    assert await store.past_runs.find_record(run) == b"\0ops\xff"
    assert await store.past_runs.find_record(other) is None


async def test_a_second_end_of_a_run_leaves_the_first_record(store: Store) -> None:
    run = await end(store, data=b"first")
    late = replace(make_end(run), record=store.past_runs.seal(run, b"second"))
    await store.runs.record(Change(end=[late]))

    assert await store.past_runs.find_record(run) == b"first"


async def test_only_the_newest_of_each_job_are_kept(store: Store) -> None:
    of_other = await end(store, NEWS)
    runs = [await end(store) for _ in range(RECORDS_KEPT + 2)]

    assert [run for run in runs if await store.past_runs.find_record(run)] == runs[2:]
    assert await store.past_runs.find_record(of_other)


async def test_a_record_goes_with_its_run(store: Store) -> None:
    run = await end(store)
    await end(store)

    await store.runs.prune(keep=1, older_than_ms=0)

    assert await store.past_runs.find(run) is None
    assert await store.past_runs.find_record(run) is None
