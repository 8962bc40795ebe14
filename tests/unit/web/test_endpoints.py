"""From HTTP to a handler and back, with handlers made of Python."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from spyweb.endpoints import ConcurrencyLimiter, EndpointAnswer
from spyweb.lua.session import Host
from spyweb.model import Ending, Outcome
from spyweb.web.app import Site, project_app
from spyweb.web.endpoints import RequestFields, describe_request, make_response, sendable
from tests.fakes.client import Client, client_of, content_of, failure
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.endpoints import Served, serve


@asynccontextmanager
async def asking(*handlers: Any) -> AsyncIterator[tuple[Served, Client]]:
    async with serve(*handlers) as served:
        app = project_app(FakeDaemonService(), Site(endpoints=served.endpoints))
        async with client_of(app) as client:
            yield served, client


async def show(asked: Mapping[str, object], host: Host) -> Ending:
    """The route, the path and the body."""
    text = f"{asked['method']} {asked['route']!r} {asked['path_args']} {asked['is_public']}"
    headers = {b"X-Body": b"none" if asked.get("body") is None else b"%d" % len(asked["body"])}  # type: ignore[arg-type]
    await host.op("_respond", [200, headers, text.encode()])
    return Ending(outcome=Outcome.SUCCESS)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/api/v/users/1", "GET b'users' [b'1'] False"),
        ("/api/public/users", "GET b'users' [] True"),
        ("/%61pi/v/a%2Fb", "GET b'a/b' [] False"),
        ("/api/v/a/b%0Ac", "GET b'a' [b'b\\nc'] False"),
        ("/api/v/", "Not Found"),
    ],
)
async def test_both_prefixes_lead_to_handlers(path: str, text: str) -> None:
    async with asking(show) as (_, client):
        assert await (await client.get(path)).text() == text


async def test_the_private_ones_need_the_key_and_the_public_ones_do_not() -> None:
    async with (
        serve() as served,
        client_of(content_of(FakeDaemonService(api_key="k"), Site(endpoints=served.endpoints))) as client,
    ):
        for path in ("/api/v/x", "/%61pi/v/x", "/api/v/public/x"):
            async with client.get(path) as answer:
                assert (answer.status, await answer.json()) == (401, failure("Unauthorized", "unauthorized"))
        assert (await client.get("/api/public/x")).status == 200
        assert (await client.get("/api/v/x", headers={"x-spyweb-key": "k"})).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example"])
async def test_without_a_key_a_foreign_page_may_change_nothing(origin: str) -> None:
    async with asking() as (_, client):
        assert (await client.post("/api/v/x", headers={"Origin": origin})).status == 403
        assert (await client.post("/api/v/x", headers={"Origin": "http://localhost:5173"})).status == 200
        assert (await client.get("/api/v/x", headers={"Origin": origin})).status == 200
        assert (await client.post("/api/public/x", headers={"Origin": origin})).status == 200


async def test_a_head_request_has_the_headers_of_the_answer_alone() -> None:
    async with asking() as (_, client):
        answer = await client.head("/api/v/x")
        assert (answer.status, answer.headers["Content-Length"], await answer.read()) == (200, "5", b"")


async def test_who_finds_no_room_is_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking() as (served, client):
        full = ConcurrencyLimiter(room=0, line=0, patience_s=1)
        monkeypatch.setattr(served.endpoints, "_limiter", full)
        async with client.get("/api/v/x") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert "too many requests" in (await answer.json())["error"]


@pytest.mark.parametrize("path", ["/api/v/x?a=1", "/api/v/%78", "/api/public/x"])
async def test_who_may_not_come_in_is_told_so(path: str) -> None:
    async with asking() as (served, client), client.get(path, headers={"Host": "evil.example"}) as answer:
        assert (answer.status, list(await answer.json())) == (403, ["error", "code", "message", "field"])
    assert not served.pool.requests


async def test_a_client_that_waits_for_leave_to_send_its_body_is_given_it() -> None:
    async with asking(show) as (_, client):
        assert (await client.post("/api/v/x", data=b"12345", expect100=True)).headers["X-Body"] == "5"


def asked(path: str, method: str = "GET", body: bytes = b"", headers: Any = None) -> RequestFields:
    found = describe_request(make_mocked_request(method, path, headers=headers), body, is_public=False)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("users?x=1", {"route": b"users", "path_args": [], "path": "/api/v/users"}),
        ("users/", {"route": b"users", "path_args": []}),
        ("users/123/profile", {"route": b"users", "path_args": [b"123", b"profile"]}),
        ("users//x", {"route": b"users", "path_args": [b"", b"x"]}),
        ("users/a%2Fb/%C3%A9%FF", {"route": b"users", "path_args": [b"a/b", b"\xc3\xa9\xff"]}),
        ("../secret", {"route": b"..", "path_args": [b"secret"]}),
        ("", {"route": b""}),
        ("/users", {"route": b""}),
        ("x", {"query": {}, "query_all": {}}),
        ("x?a=1&b=&a=2", {"query": {b"a": b"2", b"b": b""}, "query_all": {b"a": [b"1", b"2"], b"b": [b""]}}),
        ("x?q=a+b%20c%26%3D&%C3%A9=%FF", {"query": {b"q": b"a b c&=", b"\xc3\xa9": b"\xff"}}),
        ("x?a=b=c&&", {"query": {b"a": b"b=c"}, "query_all": {b"a": [b"b=c"]}}),
    ],
)
def test_an_address_is_taken_apart_before_it_is_decoded(path: str, seen: dict[str, object]) -> None:
    assert seen.items() <= asked(f"/api/v/{path}").items()


def test_header_names_are_in_lower_case_and_repeated_ones_joined() -> None:
    headers = CIMultiDict([("X-A", "1"), ("x-a", "2"), ("Cookie", "a=1"), ("cookie", "b=2"), ("Accept", "*/*")])
    assert asked("/api/v/x", headers=headers)["headers"] == {"x-a": "1, 2", "cookie": "a=1; b=2", "accept": "*/*"}


@pytest.mark.parametrize(
    ("method", "body", "expected"),
    [("GET", b"", None), ("DELETE", b"", None), ("POST", b"", b""), ("PUT", b"\0\xff", b"\0\xff"), ("GET", b"x", b"x")],
)
def test_a_body_is_bytes_and_missing_only_where_none_is_expected(
    method: str, body: bytes, expected: bytes | None
) -> None:
    assert asked("/api/v/x", method, body).get("body") == expected


@pytest.mark.parametrize(
    ("remote", "address"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("fe80::1%eth0", "fe80::1"), ("::ffff:10.0.0.9", "10.0.0.9")],
)
def test_the_clients_address_is_that_of_the_connection_without_port_or_zone(remote: str, address: str) -> None:
    request = make_mocked_request("GET", "/api/v/x", headers={"X-Forwarded-For": "6.6.6.6"}).clone(remote=remote)
    found = describe_request(request, b"", is_public=False)
    assert found
    assert found["client_ip"] == address


NO_NAMES = (
    *(b"", b"X A", b"X:A", b"X\r\nSet-Cookie", b"X\0", b"\xc3\xa9", b"Connection", b"transfer-encoding", b"TE"),
    *(b"Keep-Alive", b"Upgrade", b"trailer", b"Proxy-Authenticate", b"Content-Length"),
)
OURS = (b"spyweb_7979=x", b" spyweb_7979=x; Path=/", b"__Host-spyweb_1=x", b"=spyweb_7979=x", b"spyweb_theme=dark")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, b"1") for name in NO_NAMES),
        *((b"X-A", value) for value in (b"a\r\nX: 1", b"a\n", b"\ra", b"a\0")),  # would begin another line
        *((b"set-Cookie", cookie) for cookie in OURS),
    ],
)
def test_a_header_that_may_not_be_sent_is_dropped(name: bytes, value: bytes) -> None:
    others = {b"X-Kept": b"2", b"Set-Cookie": b"basket=spyweb_7979"}
    assert dict(sendable({name: value, **others})) == {"X-Kept": "2", "Set-Cookie": "basket=spyweb_7979"}


@pytest.mark.parametrize(
    ("body", "kind"), [(b"text", "text/plain; charset=utf-8"), (b"\xff", "application/octet-stream")]
)
def test_a_body_without_a_type_is_text_where_it_is_text(body: bytes, kind: str) -> None:
    assert make_response(EndpointAnswer(200, body)).headers["Content-Type"] == kind


def test_a_type_that_the_handler_gave_stays() -> None:
    response = make_response(EndpointAnswer(200, b"{}", {b"content-type": b"text/html"}))
    assert response.headers.getall("Content-Type") == ["text/html"]


@pytest.mark.parametrize(("status", "is_last"), [(100, False), (199, False), (200, True), (599, True)])
def test_after_a_status_that_announces_another_the_connection_ends(status: int, is_last: bool) -> None:
    response = make_response(EndpointAnswer(status, b""))
    assert response.status == status
    assert (response.keep_alive is not False) is is_last


SANDBOX = "sandbox allow-scripts allow-forms"


@pytest.mark.parametrize(
    ("headers", "policy"),
    [
        ({b"Content-Type": b"TEXT/HTML; charset=utf-8"}, SANDBOX),
        ({b"content-type": b"application/xhtml+xml"}, SANDBOX),
        ({b"Content-Type": b"image/svg+xml"}, SANDBOX),
        ({b"Content-Type": b"text/html", b"content-security-policy": b"default-src 'self'"}, "default-src 'self'"),
        ({b"Content-Type": b"application/json"}, None),
        ({}, None),
    ],
)
def test_what_is_public_and_a_page_has_no_origin_unless_its_script_says_so(
    headers: dict[bytes, bytes], policy: str | None
) -> None:
    response = make_response(EndpointAnswer(200, b"<p>", headers), is_public=True)
    assert response.headers.get("Content-Security-Policy") == policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "X-Content-Type-Options" not in make_response(EndpointAnswer(200, b"<p>", headers)).headers
