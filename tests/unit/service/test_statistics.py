"""Figures of a job, over a store in memory."""

from __future__ import annotations

import pytest

from spyweb.model import Outcome, RunState, Trigger
from spyweb.service import statistics
from spyweb.service.statistics import StatisticsService
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.views.statistics import TimeSpan
from tests.fakes.changes import PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore

HOUR_MS = 3_600_000


async def served(clock: FakeClock, *hours_ago: int) -> StatisticsService:
    store = MemoryStore(clock)
    for hours in hours_ago:
        at_ms = clock.now_ms() - hours * HOUR_MS
        new = NewRun(
            job=PRICES, state=RunState.RUNNING, trigger=Trigger(type="schedule"), due_ms=at_ms, started_ms=at_ms
        )
        (run,) = await store.runs.record(Change(new=[new]))
        assert run is not None
        await store.runs.record(Change(end=[End(run=run, ended_ms=at_ms + 500, outcome=Outcome.SUCCESS)]))
    return StatisticsService(past_runs=store.past_runs, clock=clock)


async def test_a_span_has_the_runs_that_began_in_it_oldest_first() -> None:
    service = await served(FakeClock(), 200, 30, 20, 1)
    found = {span: (await service.of(PRICES, span)).runs for span in TimeSpan}
    assert found == {TimeSpan.DAY: 2, TimeSpan.WEEK: 3, TimeSpan.MONTH: 4}
    points = (await service.of(PRICES, TimeSpan.DAY)).points
    assert [point.took_ms for point in points] == [500, 500]
    assert points[0].at_ms < points[1].at_ms


@pytest.mark.parametrize(("most", "runs", "is_partial"), [(9, 5, False), (4, 4, True)])
async def test_very_many_runs_are_read_in_pages_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, most: int, runs: int, is_partial: bool
) -> None:
    monkeypatch.setattr(statistics, "PAGE", 2)
    monkeypatch.setattr(statistics, "MOST_RUNS", most)
    monkeypatch.setattr(statistics, "FEW", 1)
    found = await (await served(FakeClock(), 5, 4, 3, 2, 1)).of(PRICES, TimeSpan.DAY)
    assert (found.runs, found.is_partial) == (runs, is_partial)
