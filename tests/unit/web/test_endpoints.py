"""From HTTP to a handler and back, with handlers made of Python."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import pytest
from aiohttp import web

from spyweb.endpoints.endpoints import AT_ONCE
from spyweb.lua.session import Host
from spyweb.model import Ending, Outcome
from spyweb.web.app import Site, project_app
from tests.fakes.client import client_of, content_of, failure
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.endpoints import Served, serve


def app_of(served: Served) -> web.Application:
    return project_app(FakeDaemonService(), Site(endpoints=served.endpoints))


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
    async with (
        serve(show) as served,
        client_of(app_of(served)) as client,
    ):
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
    async with (
        serve() as served,
        client_of(app_of(served)) as client,
    ):
        assert (await client.post("/api/v/x", headers={"Origin": origin})).status == 403
        assert (await client.post("/api/v/x", headers={"Origin": "http://localhost:5173"})).status == 200
        assert (await client.get("/api/v/x", headers={"Origin": origin})).status == 200
        assert (await client.post("/api/public/x", headers={"Origin": origin})).status == 200


async def test_a_body_arrives_and_one_that_is_too_large_does_not() -> None:
    async with (
        serve(show) as served,
        client_of(app_of(served)) as client,
    ):
        assert (await client.post("/api/v/x", data=b"\0" * 5000)).headers["X-Body"] == "5000"
        assert (await client.get("/api/v/x")).headers["X-Body"] == "none"
        async with client.post("/api/v/x", data=BytesIO(b"x" * (10 * (1 << 20) + 1))) as answer:
            assert answer.status == 413
    assert len(served.pool.requests) == 2


async def test_a_head_request_has_the_headers_of_the_answer_alone() -> None:
    async with (
        serve() as served,
        client_of(app_of(served)) as client,
    ):
        answer = await client.head("/api/v/x")
        assert (answer.status, answer.headers["Content-Length"], await answer.read()) == (200, "5", b"")


async def test_who_finds_no_room_is_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serve() as served,
        client_of(app_of(served)) as client,
    ):
        monkeypatch.setattr(served.endpoints._limiter, "_free", 0)
        monkeypatch.setattr(served.endpoints._limiter, "_line", 0)
        async with client.get("/api/v/x") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert "too many requests" in (await answer.json())["error"]
        served.endpoints._limiter._free = AT_ONCE


@pytest.mark.parametrize("path", ["/api/v/x?a=1", "/api/v/%78", "/api/public/x"])
async def test_who_may_not_come_in_is_told_so(path: str) -> None:
    async with (
        serve() as served,
        client_of(app_of(served)) as client,
        client.get(path, headers={"Host": "evil.example"}) as answer,
    ):
        assert (answer.status, list(await answer.json())) == (403, ["error", "code", "message", "field"])
    assert not served.pool.requests


async def test_a_client_that_waits_for_leave_to_send_its_body_is_given_it() -> None:
    async with (
        serve(show) as served,
        client_of(app_of(served)) as client,
    ):
        assert (await client.post("/api/v/x", data=b"12345", expect100=True)).headers["X-Body"] == "5"


async def test_a_bug_on_the_way_is_told_to_nobody_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serve() as served,
        client_of(app_of(served)) as client,
    ):
        monkeypatch.setattr(served.endpoints, "version", "no version")
        async with client.get("/api/v/x") as answer:
            assert (answer.status, await answer.json()) == (500, failure("Internal Server Error", "internal"))
        served.endpoints.version = None


async def test_what_is_no_endpoint_goes_on_to_the_router() -> None:
    async with (
        serve() as served,
        client_of(app_of(served)) as client,
    ):
        assert (await client.get("/api/jobs")).status == 200
        assert (await client.get("/api/vx")).status == 404
    assert not served.pool.requests
