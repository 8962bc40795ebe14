"""Signing in and out in a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiohttp import DummyCookieJar
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs

from spyweb.store.model.access import Scope
from spyweb.web.access.recognise import FREE
from spyweb.web.app import tcp_app
from tests.fakes.client import Client, client_of
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.dashboard import make_dashboard_service

BROWSER = {"Accept": "text/html", "Host": "localhost:7979"}
OURS = {**BROWSER, "Origin": "http://localhost:7979", "Sec-Fetch-Site": "same-origin"}


@dataclass(frozen=True, slots=True)
class Site:
    client: Client
    service: FakeDaemonService
    token: str

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.client.get(path, headers={**BROWSER, **headers}, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> tuple[int, str, str, str]:
        """Return the status, where the browser is led, the cookie that it gets, and the page."""
        async with self.client.post(path, data=fields, headers={**OURS, **headers}, allow_redirects=False) as answer:
            cookie = answer.headers.get("Set-Cookie", "")
            return answer.status, answer.headers.get("Location", ""), cookie, await answer.text()

    async def sign_in(self, **fields: str) -> str:
        _, _, cookie, _ = await self.post("/sign-in", {"key": self.token, **fields})
        return cookie.partition(";")[0]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    service = make_dashboard_service()
    made = await service.access.add("phone", [Scope.RUN])
    async with TestClient(
        TestServer(tcp_app(service)), cookie_jar=DummyCookieJar()
    ) as client:  # each test sends its own
        yield Site(client, service, made.token)


async def test_whoever_is_unknown_is_shown_the_form_and_nothing_else(site: Site) -> None:
    status, page = await site.get("/?q=x")
    assert status == 401
    assert 'type="password"' in page
    assert 'autocomplete="username"' in page
    assert 'name="back" value="/?q=x"' in page
    assert "prices" not in page


async def test_a_key_signs_in_and_leads_back(site: Site) -> None:
    status, where, cookie, _ = await site.post("/sign-in", {"key": f" {site.token}\n", "back": "/?q=x"})
    assert (status, where) == (303, "/?q=x")
    assert re.fullmatch(r"spyweb_0=[\w-]{43}; HttpOnly; Max-Age=604800; Path=/; SameSite=Strict", cookie)
    status, page = await site.get("/", Cookie=cookie.partition(";")[0])
    assert status == 200
    assert "signed in with <bdi>phone</bdi>" in page


async def test_a_wrong_key_is_told_and_put_on_record(site: Site) -> None:
    with capture_logs() as logged:
        status, _, cookie, page = await site.post("/sign-in", {"key": "guess-of-mine", "back": "/?q=x"})
    assert (status, cookie) == (401, "")
    assert "Unknown key" in page
    assert 'name="back" value="/?q=x"' in page
    assert "guess-of-mine" not in f"{page}{logged}"
    (line,) = await site.service.trail.lines(limit=10)
    assert (line.who, line.action, line.status) == ("nobody", "POST /sign-in", 401)


async def test_guesses_are_slowed_down_and_a_right_token_is_not(site: Site) -> None:
    for _ in range(FREE + 1):
        await site.post("/sign-in", {"key": "guess"})
    status, _, _, page = await site.post("/sign-in", {"key": "guess"})
    assert status == 429
    assert "try again in 1 s" in page
    assert await site.sign_in()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
async def test_nobody_is_signed_in_by_another_site(site: Site, headers: dict[str, str]) -> None:
    status, _, cookie, _ = await site.post("/sign-in", {"key": site.token}, **headers)
    assert (status, cookie) == (403, "")


@pytest.mark.parametrize(
    "parameters",
    [
        "application/x-www-form-urlencoded; charset=punycode",
        "application/x-www-form-urlencoded; charset=nosuch",
        "application/x-www-form-urlencoded; charset*=punycode''abc",
        "multipart/form-data; boundary=a",
        "application/json",
        "",
    ],
)
async def test_only_forms_in_utf_8_are_read(site: Site, parameters: str) -> None:
    data = b"key=" + b"a" * 20_000 + b"-" + b"a" * 20_000
    with capture_logs() as logged:
        async with site.client.post("/sign-in", data=data, headers={**OURS, "Content-Type": parameters}) as answer:
            assert answer.status == 415
    assert not logged


@pytest.mark.parametrize(
    ("data", "status"), [(b"key=" + b"a" * 65_536, 413), (b"a=b&" * 100 + b"c=d", 400), (b"key=%ff%C3&key=\xff", 401)]
)
async def test_a_form_is_read_within_bounds(site: Site, data: bytes, status: int) -> None:
    headers = {**OURS, "Content-Type": 'application/x-www-form-urlencoded; charset="UTF-8"'}
    async with site.client.post("/sign-in", data=data, headers=headers) as answer:
        assert answer.status == status


async def test_a_page_of_another_site_is_refused_before_its_form_is_read(site: Site) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"key="
        await asyncio.Event().wait()

    headers = {**OURS, "Origin": "https://evil.example", "Content-Type": "application/x-www-form-urlencoded"}
    async with site.client.post("/sign-in", data=endless(), headers=headers) as answer:
        assert answer.status == 403


async def test_signing_out_ends_the_session(site: Site) -> None:
    cookie = await site.sign_in()
    assert (await site.post("/sign-out", {}, Cookie=cookie, Origin="https://evil.example"))[0] == 403

    status, where, dropped, _ = await site.post("/sign-out", {}, Cookie=cookie)

    assert (status, where) == (303, "/sign-in")
    assert "Max-Age=0" in dropped
    assert (await site.get("/", Cookie=cookie))[0] == 401
    actions = [(line.who, line.action, line.status) for line in await site.service.trail.lines(limit=10)]
    assert actions == [("phone", "POST /sign-out", 303), ("phone", "POST /sign-in", 303)]


async def test_a_link_on_another_site_leads_to_the_page_of_whoever_is_signed_in(site: Site) -> None:
    """A browser does not send the cookie along with such a request, but does when the page asks for itself."""
    path = "/?q=%22%3B<x>'"
    async with site.client.get(path, headers={**BROWSER, "Sec-Fetch-Site": "cross-site"}) as answer:
        assert answer.status == 200
        assert answer.headers["Refresh"].startswith("0;url=/?q=%22%3B")
        assert not set(answer.headers["Refresh"][6:]) & set("\"'<>;, ")
    assert (await site.get("/", **{"Sec-Fetch-Site": "same-origin"}))[0] == 401


async def test_it_never_leads_to_another_site(site: Site) -> None:
    url = site.client.make_url("/")
    fields = "Accept: text/html\r\nSec-Fetch-Site: cross-site"
    head = f"GET http://evil.example/state?q HTTP/1.1\r\nHost: {url.host}\r\n{fields}\r\n\r\n"
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(head.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert re.findall(rb"Refresh: (.*)\r\n", answer) == [b"0;url=/state?q"]


async def test_without_any_key_nobody_need_sign_in() -> None:
    async with client_of(tcp_app(make_dashboard_service())) as client:
        site = Site(client, make_dashboard_service(), "")
        assert (await site.post("/sign-in", {"key": "x"}))[:3] == (303, "/", "")
        assert (await site.get("/"))[0] == 200


async def test_signing_in_again_ends_the_session_before(site: Site) -> None:
    first = await site.sign_in()
    _, _, cookie, _ = await site.post("/sign-in", {"key": site.token}, Cookie=first)
    assert (await site.get("/", Cookie=first))[0] == 401
    assert (await site.get("/", Cookie=cookie.partition(";")[0]))[0] == 200
