"""Short ways to say what happened to a job, for tests of stores and of what leans on them."""

from __future__ import annotations

from asyncio import Future

from spyweb.errors import SpywebError, StoreError
from spyweb.model import Cursor, JobId, Outcome, Run, RunId, RunState, Trigger
from spyweb.store.model.entries import ChangeEvent, WantedChange
from spyweb.store.model.runs import Change, End, NewRun, SkippedRange
from spyweb.store.sqlite.store import Store

PRICES = JobId("prices")
NEWS = JobId("news")


def make_cursor(job: JobId = PRICES, *, due_ms: int = 1000, paused: bool = False) -> Cursor:
    return Cursor(job=job, due_ms=due_ms, schedule="every 1s", paused=paused)


def make_run(
    job: JobId = PRICES, *, due_ms: int | None = 1000, attempt: int = 1, state: RunState = RunState.RUNNING
) -> NewRun:
    return NewRun(
        job=job,
        state=state,
        trigger=Trigger(type="schedule"),
        attempt=attempt,
        due_ms=due_ms,
        started_ms=due_ms if state is RunState.RUNNING else None,
    )


def refuse(_change: Change, error: SpywebError | None = None) -> Future[list[RunId | None]]:
    """Fail in place of a store's `record`."""
    refused: Future[list[RunId | None]] = Future()
    refused.set_exception(error or StoreError("the disk is full"))
    return refused


def make_end(run: RunId, *, ended_ms: int = 2000, outcome: Outcome = Outcome.SUCCESS) -> End:
    return End(run=run, ended_ms=ended_ms, outcome=outcome)


def make_skipped(
    job: JobId = PRICES, *, first: int = 1000, last: int = 3000, count: int = 3, reason: str = "the daemon was down"
) -> SkippedRange:
    return SkippedRange(
        job=job,
        outcome=Outcome.MISSED,
        first_due_ms=first,
        last_due_ms=last,
        count=count,
        reason=reason,
        at_ms=last + 500,
    )


async def start_run(store: Store, job: JobId = PRICES, *, due_ms: int | None = 1000) -> RunId:
    run = (await store.runs.record(Change(new=[make_run(job, due_ms=due_ms)])))[0]
    assert run is not None
    return run


async def run_once(
    store: Store, job: JobId = PRICES, *, due_ms: int = 1000, ended_ms: int = 2000, outcome: Outcome = Outcome.SUCCESS
) -> RunId:
    run = await start_run(store, job, due_ms=due_ms)
    await store.runs.record(Change(end=[make_end(run, ended_ms=ended_ms, outcome=outcome)]))
    return run


def tell(runs: list[Run]) -> list[str]:
    """Describe runs as short strings, to be compared as a story."""
    return [f"{run.id} {run.job} {run.outcome or run.state}{f' x{run.count}' * (run.count > 1)}" for run in runs]


async def waiting(store: Store) -> list[WantedChange]:
    """Return the changes that wait to be handed out, in the order in which they happened."""
    return sorted(await store.events.wanted(1000), key=lambda change: change.event)


async def kept(store: Store) -> list[ChangeEvent]:
    """Return the events of the waiting changes, each once."""
    found = [await store.events.find(number) for number in dict.fromkeys(each.event for each in await waiting(store))]
    return [event for event in found if event]
