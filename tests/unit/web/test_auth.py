"""Who may come in by TCP."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from spyweb.web.app import tcp_app
from spyweb.web.auth import _is_loopback_name, is_loopback
from tests.fakes.daemon_service import FakeDaemonService

KEY = "clé-secrète"


async def status_of(path: str, key: str | None, headers: dict[str, str]) -> tuple[int, object]:
    async with (
        TestClient(TestServer(tcp_app(FakeDaemonService(), key))) as client,
        client.get(path, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize("path", ["/api/jobs", "/%61pi/jobs", "/api/nothing", "/api/public/../jobs", "/api/jobs?x"])
@pytest.mark.parametrize("headers", [{}, {"X-SpyWeb-Key": ""}, {"X-SpyWeb-Key": "guess"}, {"X-SpyWeb-Key": KEY + "x"}])
async def test_without_the_right_key_nothing_of_the_api_is_answered(path: str, headers: dict[str, str]) -> None:
    assert await status_of(path, KEY, headers) == (401, {"error": "Unauthorized"})


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


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "example.com", "10.0.0.1", "localhost.localdomain"])
def test_only_this_machine_is_loopback(host: str) -> None:
    assert not is_loopback(host)


async def test_a_host_that_is_too_long_is_refused_and_not_kept() -> None:
    kept = _is_loopback_name.cache_info().currsize

    status, _ = await status_of("/api/jobs", None, {"Host": "x" * 7_000})
    assert status == 403
    assert _is_loopback_name.cache_info().currsize == kept
