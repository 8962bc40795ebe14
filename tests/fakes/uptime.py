"""Results of jobs, for tests of their uptime."""

from __future__ import annotations

from typing import NamedTuple

from spyweb.model import JobId, Outcome
from spyweb.settings.units import DAY_MS
from spyweb.store.model.runs import Change, End
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import PRICES, start_run

LONG_MS = 10 * DAY_MS  # a result holds so long


class Result(NamedTuple):
    job: JobId
    at_ms: int
    up: bool
    stale_ms: int | None
    latency: int | None = None


def result(
    at_ms: int, up: bool = True, job: JobId = PRICES, stale_ms: int | None = None, latency: int | None = None
) -> Result:
    return Result(job, at_ms, up, stale_ms or at_ms + LONG_MS, latency)


async def record(store: Store, *results: Result) -> list[End]:
    """Record the ends of runs with these results, in one commit."""
    ends = []
    for job, at_ms, up, stale_ms, latency in results:
        run, outcome = await start_run(store, job, due_ms=None), Outcome.SUCCESS if up else Outcome.FAILED
        ends.append(End(run=run, ended_ms=at_ms, outcome=outcome, stale_ms=stale_ms, latency=latency))
    await store.runs.record(Change(end=ends))
    return ends
