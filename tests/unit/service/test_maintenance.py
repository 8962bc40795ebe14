"""What maintenance is now, asked of a service over a harness."""

from __future__ import annotations

from spyweb.model import JobId
from spyweb.schedules.maintenance import MaintenanceCalendar, MaintenanceRule, Once
from spyweb.service.maintenance import MaintenanceService
from spyweb.settings.units import DAY_MS
from tests.fakes.harness import Harness, make_job


async def test_it_looks_at_the_rules_and_jobs_of_the_moment(t: Harness) -> None:
    rules: list[MaintenanceRule] = []
    service = MaintenanceService(calendar=lambda: MaintenanceCalendar(rules), live=t.live, clock=t.clock)
    assert not (await service.look()).next

    now_ms = t.clock.now_ms()
    rules.append(MaintenanceRule(Once(now_ms + 3 * DAY_MS, now_ms + 4 * DAY_MS), ("prices",)))
    await t.settle(make_job("prices"))
    (window,) = (await service.look()).next
    assert (window.start_ms, window.job_count) == (now_ms + 3 * DAY_MS, 1)
    assert not (await service.look(days=2)).next
    assert not (await service.look(may_see=lambda job: job == "news")).next
    assert service.until(JobId("prices")) is None
    t.clock.advance(3 * 86_400)
    assert service.until(JobId("prices")) == window.end_ms
    assert service.until(JobId("news")) is None
