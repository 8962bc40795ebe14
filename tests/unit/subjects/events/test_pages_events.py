"""The page of events."""

from __future__ import annotations

import re

from spyweb.events.happenings import EventType, RunHappened, StateHappened
from spyweb.model import ChangeKind, JobId, Outcome, RunId
from spyweb.store.model.access import NewAuditLine, Scope
from tests.fakes.daemon_service import BACKUP, NOW_MS, PRICES, FakeDaemonService
from tests.fakes.dashboard import MARKUP, dashboard, get_page, make_dashboard_service, page_of, signed_in


def run_ended(service: FakeDaemonService, number: int, job: JobId = PRICES, reason: str = "") -> None:
    happened = RunHappened(
        what="ended", job=job, run=RunId(number), took_ms=1_200, outcome=Outcome.FAILED, reason=reason
    )
    service.events.publish(EventType.RUN, job, happened)


async def lines(service: FakeDaemonService, path: str = "/events", **headers: str) -> list[str]:
    async with dashboard(service) as client:
        status, page = await get_page(client, path, **headers)
        assert status == 200, page
        return re.findall(r"run (\d+) failed after", page)


async def test_it_listens_from_the_first_look_on_and_shows_the_newest_first() -> None:
    service = make_dashboard_service()
    run_ended(service, 1)
    page = await page_of("/events", service)
    assert "Nothing has happened since this page began to listen." in page
    run_ended(service, 2)
    run_ended(service, 3)
    assert await lines(service) == ["3", "2"]


async def test_types_and_jobs_are_chosen() -> None:
    service = make_dashboard_service()
    await lines(service)
    run_ended(service, 2)
    run_ended(service, 3, BACKUP)
    happened = StateHappened(what=ChangeKind.UPDATED, namespace="global", key=MARKUP, version=2, at_ms=NOW_MS)
    service.events.publish(EventType.STATE, None, happened)
    assert await lines(service, "/events?job=backup") == ["3"]
    assert await lines(service, "/events?type=state") == []
    page = await page_of(f"/events?type=state&job={MARKUP}", service)
    page = await page_of("/events?type=state", service)
    assert "&lt;script&gt;" in page


async def test_whoever_may_see_some_jobs_hears_of_those_and_actions_are_for_admins() -> None:
    service = make_dashboard_service()
    limited = await signed_in(service, Scope.ADMIN, jobs=("backup",))
    await lines(service, **limited)
    run_ended(service, 2)
    run_ended(service, 3, BACKUP)
    action = NewAuditLine(who="anna", source="key", action="POST /x", status=200, at_ms=NOW_MS, job="backup")
    service.events.publish(EventType.AUDIT, BACKUP, action)
    assert await lines(service, **limited) == ["3"]
    for path in ("/events", "/events?type=audit"):
        page = await page_of(path, service, limited)
        assert "POST /x" not in page
    await page_of("/events?job=prices", service, limited, status=404)
