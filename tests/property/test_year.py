"""A year of schedules on the virtual clock."""

from __future__ import annotations

import pytest

from spyweb.model import Cron, Every, JobId, Outcome, Schedule
from spyweb.schedules.due import next_due
from tests.fakes.clock import FakeClock
from tests.fakes.harness import harness, make_job
from tests.fakes.memory_store import MemoryStore

DAY = 86_400.0
DAYS = 365


@pytest.mark.slow
async def test_a_year_of_schedules_runs_every_due_time_once_with_a_week_of_downtime_on_record() -> None:
    schedules: dict[str, Schedule] = {
        "six_hourly": Every(period_ms=6 * 3_600_000),
        "nightly": Cron(expression="30 2 * * *", timezone="Europe/Berlin"),
        "weekly": Cron(expression="0 9 * * 1", timezone="America/New_York"),
    }
    store = MemoryStore(clock := FakeClock())
    for days, down in ((200, 7), (DAYS - 207, 0)):
        async with harness(store, clock) as t:
            await t.settle(*(make_job(name, schedule=schedule) for name, schedule in schedules.items()))
            await clock.turn(days * DAY)
        clock.advance(down * DAY)
    for name, schedule in schedules.items():
        runs = list(reversed(await store.runs.list(JobId(name), limit=10_000)))
        ran = [run.due_ms for run in runs if run.outcome is Outcome.SUCCESS and run.due_ms is not None]
        missed = sum(run.count for run in runs if run.outcome is Outcome.MISSED)
        assert len(set(ran)) == len(ran)
        due, count = runs[0].due_ms or 0, 1
        while (following := next_due(schedule, due)) is not None and following <= clock.now_ms():
            due, count = following, count + 1
        assert len(ran) + missed == count
