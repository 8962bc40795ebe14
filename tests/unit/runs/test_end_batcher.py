"""The ends of runs share a commit where nobody waits for them."""

from __future__ import annotations

from spyweb.model import JobId, Outcome, RunId, RunState, Trigger
from spyweb.runs.end_batcher import PATIENCE, EndBatcher
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.store.sqlite.runs import Runs
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore


class Notebook:
    """Runs of a store, and how many ends were recorded at once."""

    def __init__(self, runs: Runs) -> None:
        self.sizes: list[int] = []
        self._record = runs.record
        runs.record = self.record  # type: ignore[method-assign]  # of this one store

    def record(self, change: Change):  # type: ignore[no-untyped-def]  # as the store's
        self.sizes.append(len(change.end))
        return self._record(change)


def end(run: int) -> End:
    return End(run=RunId(run), ended_ms=1, outcome=Outcome.SUCCESS)


async def open_ends() -> tuple[EndBatcher, Notebook, FakeClock]:
    store = MemoryStore(clock := FakeClock())
    new = [
        NewRun(job=JobId(f"job{number}"), state=RunState.RUNNING, trigger=Trigger(type="manual")) for number in range(3)
    ]
    await store.runs.record(Change(new=new))
    return EndBatcher(store.runs, clock), Notebook(store.runs), clock


async def test_ends_wait_for_the_runs_that_are_under_way_and_the_last_one_for_nobody() -> None:
    ends, notebook, clock = await open_ends()
    ends.under_way = 1
    first = ends.add(end(1))
    given_up = ends.add(end(2))
    given_up.cancel()
    ends.under_way = 0
    assert await ends.add(end(3))
    assert await first
    await clock.turn(1)
    assert notebook.sizes == [3]


async def test_ends_wait_only_so_long() -> None:
    ends, notebook, clock = await open_ends()
    ends.under_way = 1
    waiter = ends.add(end(1))
    await clock.turn(PATIENCE / 2)
    assert not waiter.done()
    await clock.turn(PATIENCE / 2)
    assert waiter.done()
    later = ends.add(end(2))
    await clock.turn(PATIENCE)
    assert await later
    assert notebook.sizes == [1, 1]


async def test_what_the_store_refuses_is_left_to_each_run() -> None:
    store = MemoryStore(clock := FakeClock())
    ends = EndBatcher(store.runs, clock)
    ends.under_way = 1
    waiters = [ends.add(end(1)), ends.add(end(2))]
    await store.close()
    ends.flush()
    assert [await waiter for waiter in waiters] == [False, False]
