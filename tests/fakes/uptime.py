"""Results of jobs, for tests of their uptime."""

from __future__ import annotations

from msgspec.structs import replace

from spyweb.model import JobId, Outcome
from spyweb.settings.units import DAY_MS
from spyweb.store.model.runs import Change, End
from spyweb.store.model.uptime import Sample
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import PRICES, start_run

LONG_MS = 10 * DAY_MS  # a result holds so long


def result(at_ms: int, up: bool = True, job: JobId = PRICES, **changes: object) -> Sample:
    return replace(Sample(job=job, at_ms=at_ms, up=up, stale_ms=at_ms + LONG_MS), **changes)


async def record(store: Store, *samples: Sample) -> list[End]:
    """Record the ends of runs with these results, in one commit."""
    runs = [await start_run(store, sample.job, due_ms=None) for sample in samples]
    ends = [
        End(run=run, ended_ms=sample.at_ms, outcome=Outcome.SUCCESS, sample=sample)
        for run, sample in zip(runs, samples, strict=True)
    ]
    await store.runs.record(Change(end=ends))
    return ends
