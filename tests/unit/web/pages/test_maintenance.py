"""The page of maintenance."""

from __future__ import annotations

from spyweb.schedules.maintenance import MaintenanceRule, Once
from spyweb.store.model.access import Scope
from tests.fakes.daemon_service import NOW_MS, FakeDaemonService
from tests.fakes.dashboard import MARKUP, dashboard, get_page, make_dashboard_service, signed_in


def service_with(*rules: MaintenanceRule) -> FakeDaemonService:
    """Return a service with the rules that a test gives."""
    service = make_dashboard_service()
    service.calendar.rules = rules  # type: ignore[attr-defined]
    return service


async def test_it_says_what_is_now_and_what_comes() -> None:
    async with dashboard() as client:
        status, page = await get_page(client, "/maintenance")
        assert status == 200
        assert "Maintenance now, until <time" in page
        assert "7\N{NO-BREAK SPACE}times in 7 days" in page
        assert page.count('<path class="h3"') == 2
        assert 'aria-label="7\N{NO-BREAK SPACE}windows"' in page
        assert "<code>0 3 * * *</code>" in page
        _, page = await get_page(client, "/incidents")
        assert '<a href="/maintenance">Maintenance</a> until' in page
        assert "what fails does not count" in (await get_page(client, "/jobs/backup"))[1]


async def test_without_rules_it_teaches_how_to_write_one() -> None:
    service = service_with()
    async with dashboard(service) as client:
        _, page = await get_page(client, "/maintenance")
        assert "No maintenance in the next 7 days</h1>" in page
        assert "[[maintenance]]" in page
        service.calendar.rules = [MaintenanceRule(Once(NOW_MS + 1_000, NOW_MS + 9_000))]  # type: ignore[attr-defined]
        _, page = await get_page(client, "/maintenance")
        assert "No maintenance now; the next <time" in page
        assert "all jobs" in page


async def test_text_of_others_is_text() -> None:
    service = service_with(
        MaintenanceRule(Once(NOW_MS - 1, NOW_MS + 9_000), text=MARKUP),
        MaintenanceRule(Once(NOW_MS - 1, NOW_MS + 9_000), (MARKUP, "prices")),
    )
    async with dashboard(service) as client:
        for path, least in (("/maintenance", 4), ("/incidents", 1)):
            _, page = await get_page(client, path)
            assert page.count("&lt;script&gt;") >= least


async def test_a_key_of_some_jobs_is_told_of_theirs_alone() -> None:
    service = make_dashboard_service()
    limited = await signed_in(service, Scope.READ, jobs=("backup",))
    async with dashboard(service) as client:
        status, page = await get_page(client, "/maintenance", **limited)
    assert (status, "reboot" in page, "prices" in page) == (200, True, False)
