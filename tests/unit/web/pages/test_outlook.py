"""What every page says of how all stands, as somebody may see it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import SignSeen
from spyweb.store.model.incidents import SubjectEvent
from spyweb.web.access.principal import LOOPBACK
from spyweb.web.pages.outlook import line_of, look, name_of
from tests.fakes.clock import settle
from tests.fakes.daemon_service import BACKUP, FakeDaemonService
from tests.fakes.dashboard import FakeOverviewService, dashboard, get_page, make_dashboard_service, three_rows
from tests.fakes.incidents import fail


async def with_incidents(service: FakeDaemonService) -> FakeDaemonService:
    """One of backup, and one of a channel."""
    await fail(service.stored_incidents, BACKUP)
    seen = SubjectEvent(subject="channel:ops", event=SignSeen("down", "x"), policy=AlertPolicy(), at_ms=0)
    await service.stored_incidents.note([seen])
    return service


async def test_open_incidents_are_counted_as_somebody_may_see_them() -> None:
    service = await with_incidents(make_dashboard_service())
    everything = await look(service, LOOPBACK)
    assert (everything.counts["incidents"], everything.counts["jobs"], everything.state) == (2, 2, "bad")
    some = await look(service, replace(LOOPBACK, jobs=("backup",)))
    assert [each.subject for each in some.incidents] == ["job:backup"]
    assert (await look(service, replace(LOOPBACK, jobs=("prices",)))).counts["incidents"] == 0


async def test_what_is_open_is_no_good_news_though_all_jobs_are_well() -> None:
    service = make_dashboard_service([row for row in three_rows() if row.job.id == "prices"])
    assert (await look(service, LOOPBACK)).state == "ok"
    await with_incidents(service)
    await settle()
    assert (await look(service, LOOPBACK)).state == "warn"


async def test_the_first_page_alone_asks_for_the_views_of_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_dashboard_service()
    monkeypatch.setattr(service, "jobs", None)
    monkeypatch.setattr(FakeOverviewService, "look", None)
    async with dashboard(service) as client:
        for path, status in [
            ("jobs/prices", 200),
            ("jobs/Prices", 302),
            ("jobs/price", 404),
            ("runs?job=prices", 200),
            ("nosuch", 404),
            ("health", 200),
        ]:
            assert (await get_page(client, f"/{path}"))[0] == status, path


async def test_the_first_page_says_what_is_open_and_since_when() -> None:
    service = make_dashboard_service()
    async with dashboard(service) as client:
        assert "incident" not in (await get_page(client, "/"))[1].partition("<main")[2].partition("</main")[0]
    await fail(service.stored_incidents, BACKUP)
    async with dashboard(service) as client:
        _, page = await get_page(client, "/")
        assert '<a href="/incidents/1">Incident 1 is open</a>: <bdi>backup</bdi> failing since <strong><time' in page
    await with_incidents(service)
    async with dashboard(service) as client:
        _, page = await get_page(client, "/")
        assert '<a href="/incidents">2\N{NO-BREAK SPACE}incidents are open</a>, the oldest since' in page
        assert '<a href="/incidents/2"><bdi>Channel ops</bdi></a>' in page
    line = line_of(service, (await look(service, LOOPBACK)).incidents)
    assert line is not None
    assert (line.count, name_of(service, "channel:ops")) == (2, "")
