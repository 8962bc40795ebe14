"""The page of alert channels."""

from __future__ import annotations

from urllib.parse import quote

from yarl import URL

from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import SignSeen
from spyweb.settings.alerts import AlertSettings
from spyweb.store.model.access import Scope
from spyweb.store.model.incidents import SubjectEvent
from tests.fakes.daemon_service import NOW_MS, FakeDaemonService
from tests.fakes.dashboard import MARKUP, POST, dashboard, get_page, make_dashboard_service, page_of, signed_in


async def down(service: FakeDaemonService) -> None:
    seen = SubjectEvent(subject="channel:ops", event=SignSeen("down", MARKUP), policy=AlertPolicy(), at_ms=NOW_MS)
    await service.stored_incidents.note([seen])


async def test_each_says_what_it_is_told_and_how_it_does() -> None:
    service = make_dashboard_service()
    service.tallies.attempted("phone", None)
    async with dashboard(service) as client:
        status, page = await get_page(client, "/channels")
        assert status == 200
        assert "2\N{NO-BREAK SPACE}alert channels</h1>" in page
        assert "webhook at <bdi>example.org</bdi>" in page
        assert "is told of what is critical · never quiet · nothing waits · took its last at <time" in page
        assert "s3cret" not in page
        await down(service)
        service.tallies.attempted("ops", MARKUP)
        _, page = await get_page(client, "/channels")
    assert "1 of 2\N{NO-BREAK SPACE}channels takes no messages</h1>" in page
    assert 'href="/incidents/1">incident 1</a>' in page
    assert page.count("&lt;script&gt;") == 1


async def test_a_test_is_sent_and_how_it_went_is_shown() -> None:
    async with dashboard() as client:
        for name, status in (("ops", 303), ("phone", 303), (MARKUP, 404)):
            address = f"/channels/{quote(name, safe='')}/test"
            async with client.post(
                URL(address, encoded=True), data={"back": "/channels"}, headers=POST, allow_redirects=False
            ) as answer:
                assert answer.status == status
                assert "<script>alert" not in await answer.text()
        _, page = await get_page(client, "/channels")
    assert "It has taken the test of <time" in page
    assert "It did not take the test of <time" in page
    assert "<code>answered 401</code>" in page


async def test_without_any_it_teaches_how_to_have_one() -> None:
    service = make_dashboard_service()
    service.alert_settings = AlertSettings()
    page = await page_of("/channels", service)
    assert "No alert channel: nobody is told</h1>" in page
    assert "[channels.phone]" in page


async def test_whoever_may_only_look_has_no_button() -> None:
    service = make_dashboard_service()
    assert "Send a test" not in await page_of("/channels", service, await signed_in(service, Scope.READ))
