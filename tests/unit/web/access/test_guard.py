"""Who may come in by TCP."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from spyweb.web.access.guard import guarded_by
from spyweb.web.access.principal import NOBODY, Principal, principal_of
from spyweb.web.access.recognise import AccessRule
from spyweb.web.access.rights import Right, rights_of
from spyweb.web.app import tcp_app
from tests.fakes.client import client_of, failure
from tests.fakes.daemon_service import FakeDaemonService

KEY = "clé-secrète"


async def status_of(path: str, key: str | None, headers: dict[str, str]) -> tuple[int, object]:
    async with (
        TestClient(TestServer(tcp_app(FakeDaemonService(api_key=key)))) as client,
        client.get(path, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize("path", ["/api/jobs", "/%61pi/jobs", "/api/nothing", "/api/public/../jobs", "/api/jobs?x"])
@pytest.mark.parametrize("headers", [{}, {"X-SpyWeb-Key": ""}, {"X-SpyWeb-Key": "guess"}, {"X-SpyWeb-Key": KEY + "x"}])
async def test_without_the_right_key_nothing_of_the_api_is_answered(path: str, headers: dict[str, str]) -> None:
    assert await status_of(path, KEY, headers) == (401, failure("Unauthorized", "unauthorized"))


async def test_the_right_key_opens_whatever_host_is_asked_for() -> None:
    headers = {"x-spyweb-key": KEY, "Host": "spyweb.example.com"}
    assert (await status_of("/api/jobs", KEY, headers))[0] == 200


async def test_the_probe_needs_no_key() -> None:
    assert (await status_of("/healthz", KEY, {"Host": "10.0.0.1"}))[0] == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7979", "127.0.0.1:1", "127.1.2.3", "[::1]:7979"])
async def test_without_a_key_loopback_is_answered(host: str) -> None:
    assert (await status_of("/api/jobs", None, {"Host": host}))[0] == 200


@pytest.mark.parametrize("path", ["/api/jobs", "/healthz"])
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "192.168.1.1:7979", "[::"]
)
async def test_without_a_key_a_rebound_name_is_refused(path: str, host: str) -> None:
    assert (await status_of(path, None, {"Host": host}))[0] == 403


@pytest.mark.parametrize(
    "header", ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Whatever"]
)
async def test_without_a_key_nothing_is_answered_through_a_proxy(header: str) -> None:
    for path in ("/api/jobs", "/healthz"):
        status, answer = await status_of(path, None, {header: "x"})
        assert (status, "`spyweb keys add`" in str(answer)) == (403, True)
        assert (await status_of(path, KEY, {header: "x", "X-SpyWeb-Key": KEY}))[0] == 200


KEEPER, READER, LIMITED = (
    Principal(name="keeper", rights=rights_of(Right.ADMIN), source="key"),
    Principal(name="reader", rights=rights_of(Right.READ), source="key"),
    Principal(name="limited", rights=rights_of(Right.RUN), source="key", jobs=("price*",)),
)


async def ask_as(principal: Principal, rule: AccessRule) -> int:
    async def answer(request: web.Request) -> web.Response:
        assert principal_of(request) is principal
        return web.Response()

    app = web.Application(middlewares=[guarded_by(lambda _, __: principal, {answer: rule})])
    app.router.add_get("/", answer)
    async with client_of(app) as client, client.get("/") as found:
        return found.status


@pytest.mark.parametrize(
    ("principal", "rule", "status"),
    [
        (KEEPER, AccessRule(Right.ADMIN), 200),
        (READER, AccessRule(Right.READ), 200),
        (READER, AccessRule(Right.RUN), 403),
        (LIMITED, AccessRule(Right.RUN, of_job=True), 200),
        (LIMITED, AccessRule(Right.RUN), 403),
        (LIMITED, AccessRule(Right.STATE, of_job=True), 403),
        (LIMITED, AccessRule(None), 200),
        (NOBODY, AccessRule(None), 200),
        (NOBODY, AccessRule(Right.READ), 401),
    ],
)
async def test_a_rule_is_kept_by_everybody(principal: Principal, rule: AccessRule, status: int) -> None:
    assert await ask_as(principal, rule) == status


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_without_a_key_a_foreign_page_may_start_nothing(origin: str) -> None:
    service = FakeDaemonService()
    async with client_of(tcp_app(service)) as client:
        assert (await client.post("/api/jobs/prices/trigger", headers={"Origin": origin})).status == 403
    assert service.story == []
