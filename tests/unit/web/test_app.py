"""The addresses that each app serves."""

from __future__ import annotations

from spyweb.web.app import tcp_app
from tests.fakes.client import client_of, get_json, post_json
from tests.fakes.daemon_service import FakeDaemonService


async def test_tcp_serves_the_probe_and_the_jobs_and_nothing_else() -> None:
    async with client_of(tcp_app(FakeDaemonService(), None)) as client:
        assert (await get_json(client, "/healthz"))[0] == 200
        assert (await get_json(client, "/api/jobs"))[0] == 200
        for path in ("/", "/api/runs", "/api/next", "/api/health", "/api/jobs/prices/logs"):
            assert await get_json(client, path) == (404, {"error": "Not Found"})
        assert (await post_json(client, "/api/jobs/prices/trigger"))[0] == 404


async def test_a_wrong_method_says_which_are_right() -> None:
    async with client_of(tcp_app(FakeDaemonService(), None)) as client, client.post("/api/jobs") as answer:
        assert answer.status == 405
        assert await answer.json() == {"error": "Method Not Allowed"}
        assert answer.headers["Allow"] == "GET,HEAD"
