"""The link of a message: a page with a button, which alone acknowledges, without any key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientResponse, DummyCookieJar
from aiohttp.test_utils import TestClient, TestServer

from spyweb.alerts.delivery import LIFE_MS
from spyweb.incidents.truth import Removed
from spyweb.settings.alerts import AlertSettings
from spyweb.store.model.access import Scope
from spyweb.web.app import Site, tcp_app
from tests.fakes.client import Client
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.dashboard import make_dashboard_service
from tests.fakes.incidents import fail, happen, succeed

BROWSER = {"Accept": "text/html", "Host": "spyweb.example.org"}
ELSEWHERE = {**BROWSER, "Origin": "https://mail.example.com", "Sec-Fetch-Site": "cross-site"}
BUTTON = ">Acknowledge</button>"


@dataclass(frozen=True, slots=True)
class Visited:
    client: Client
    service: FakeDaemonService
    clock: FakeClock

    def link(self, incident: int, channel: str = "phone") -> str:
        """Return a link without the name of the site, as the server is asked for it."""
        parts = urlsplit(self.service.ack_links.ack_link(incident, channel, self.clock.now_ms()))
        return f"{parts.path}?{parts.query}"

    async def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        async with self.client.request(method, path, headers={**BROWSER, **headers}, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def post(self, path: str, **headers: str) -> tuple[int, str]:
        return await self.get(path, "POST", **headers)

    async def acked_by(self, incident: int) -> str:
        return (await self.service.incidents.get(incident)).acked_by


async def visiting(service: FakeDaemonService, site: Site | None = None) -> Client:
    """One incident of prices, which is open, and one of backup, which is over."""
    await service.ack_links.load(service.store.keys)
    await fail(service.stored_incidents, "prices", "<b>no</b> space")
    await fail(service.stored_incidents, "backup")
    await succeed(service.stored_incidents, "backup")
    return TestClient(TestServer(tcp_app(service, site)), cookie_jar=DummyCookieJar())


@pytest.fixture(params=["with keys", "without any key"])
async def visited(request: pytest.FixtureRequest) -> AsyncIterator[Visited]:
    service = make_dashboard_service()
    clock = service.clock
    assert isinstance(clock, FakeClock)
    if request.param == "with keys":
        await service.access.add("somebody", [Scope.ADMIN])
    async with await visiting(service) as client:
        yield Visited(client, service, clock)


async def test_opening_it_changes_nothing_and_its_button_acknowledges(visited: Visited) -> None:
    link = visited.link(1)
    for _ in range(2):
        status, page = await visited.get(link)
        assert (status, BUTTON in page, "no&lt;/b&gt; space" in page) == (200, True, True)
        async with visited.client.head(link, headers=BROWSER) as answer:
            assert answer.status == 200
    assert await visited.acked_by(1) == ""
    status, page = await visited.post(link)
    assert (status, BUTTON in page, "phone" in page) == (200, False, True)
    assert await visited.acked_by(1) == "phone"
    status, page = await visited.get(link)
    assert (status, BUTTON in page) == (200, False)


@pytest.mark.parametrize(
    "headers", [ELSEWHERE, {"Origin": "null"}, {"Cookie": "spyweb_0=nonsense"}, {"X-SpyWeb-Key": "x"}]
)
async def test_it_works_from_the_browser_of_any_mail_program(visited: Visited, headers: dict[str, str]) -> None:
    assert (await visited.get(visited.link(1), **headers))[0] == 200
    assert (await visited.post(visited.link(1), **headers))[0] == 200
    assert await visited.acked_by(1) == "phone"


async def test_who_pressed_first_takes_care_and_it_is_on_record(visited: Visited) -> None:
    for channel in ("phone", "ops", "phone"):
        assert (await visited.post(visited.link(1, channel)))[0] == 200
    found = await visited.service.incidents.get(1)
    assert (found.acked_by, [note.text for note in found.notes]) == ("phone", ["acknowledged by phone"])
    lines = await visited.service.trail.lines(limit=10)
    assert [(line.who, line.source, line.action, line.target, line.status) for line in lines] == [
        (who, "link", "POST /a/{incident}", "incident 1", 200) for who in ("phone", "ops", "phone")
    ]
    assert visited.link(1).rpartition("=")[2] not in str(lines)


async def test_of_what_is_over_nobody_takes_care(visited: Visited) -> None:
    status, page = await visited.get(visited.link(2))
    assert (status, BUTTON in page, "recovered" in page) == (200, False, True)
    assert (await visited.post(visited.link(2)))[0] == 409
    assert await visited.acked_by(2) == ""


async def test_of_a_job_that_is_gone_it_is_not_said_that_it_is_well(visited: Visited) -> None:
    await happen(visited.service.stored_incidents, "prices", Removed())
    status, page = await visited.get(visited.link(1))
    assert (status, BUTTON in page, "recovered" in page, "removed or disabled" in page) == (200, False, False, True)


async def answer_to(client: Client, method: str, path: str) -> tuple[int, str, set[str]]:
    answer: ClientResponse
    async with client.request(method, path, headers=BROWSER) as answer:
        return answer.status, await answer.text(), set(answer.headers)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_whatever_is_wrong_is_answered_alike(visited: Visited, method: str) -> None:
    link = visited.link(1)
    assert (await visited.get(link))[0] == 200
    wrong = [
        link[:-1] + ("A" if link[-1] != "A" else "B"),
        link.replace("/a/1?", "/a/2?"),
        link.replace("c=phone", "c=ops"),
        link.replace("c=phone", "c=" + "x" * 3_000),
        visited.link(77),  # it is signed, and there is no such incident
        visited.link(1, "gone"),
        "/a/1",
        "/a/1?c=phone&e=x&s=%ff%00",
    ]
    answers = [await answer_to(visited.client, method, path) for path in wrong]
    visited.clock.advance(LIFE_MS / 1000)
    answers.append(await answer_to(visited.client, method, link))
    assert {answer[0] for answer in answers} == {404}
    assert len({answer[1].partition("<main")[2].partition("</main>")[0] for answer in answers}) == 1
    assert len({frozenset(answer[2]) for answer in answers}) == 1
    assert await visited.acked_by(1) == ""


async def test_a_channel_that_is_gone_takes_its_links_with_it(visited: Visited) -> None:
    link = visited.link(1)
    visited.service.alert_settings = AlertSettings()
    assert (await visited.post(link))[0] == 404


async def test_a_large_body_is_not_read(visited: Visited) -> None:
    async with visited.client.post(visited.link(1), data=b"x" * 2_000, headers=BROWSER) as answer:
        assert answer.status == 413
    assert await visited.acked_by(1) == ""


async def test_a_body_of_unknown_length_is_not_read_and_none_needs_no_length(visited: Visited) -> None:
    async def unknown() -> AsyncIterator[bytes]:
        yield b"x"

    async with visited.client.post(visited.link(1), data=unknown(), headers=BROWSER) as answer:
        assert answer.status == 413
    assert await visited.acked_by(1) == ""
    address = visited.client.make_url(visited.link(1))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"POST {address.raw_path_qs} HTTP/1.1\r\nHost: {address.authority}\r\n\r\n".encode())
    first = await reader.readline()
    writer.close()
    await writer.wait_closed()
    assert b" 200 " in first
    assert await visited.acked_by(1) == "phone"


async def test_it_is_kept_by_nobody_and_told_to_nobody(visited: Visited) -> None:
    async with visited.client.get(visited.link(1), headers=BROWSER) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Robots-Tag"] == "noindex"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert "Set-Cookie" not in answer.headers


async def test_nothing_else_is_open_by_it(visited: Visited) -> None:
    query = visited.link(1).partition("?")[2]
    for path in ("/api/incidents/1", "/incidents/1"):
        assert (await visited.get(f"{path}?{query}"))[0] in (401, 403)
    assert (await visited.post(f"/api/incidents/1/ack?{query}"))[0] in (401, 403)
    assert await visited.acked_by(1) == ""
