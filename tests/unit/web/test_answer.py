"""Errors as HTTP answers."""

from __future__ import annotations

import pytest

from spyweb.errors import ConfigError, NoAccess, PoolError, Problem, ScriptError, StoreClosed
from spyweb.web.app import socket_app
from tests.fakes.client import client_of, failure, get_json
from tests.fakes.daemon_service import FakeDaemonService, refused


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ConfigError([Problem("config.toml", 3, "port", "expected a whole number")]), 422, "config"),
        (ScriptError("jobs/x.lua", 1, "unexpected symbol"), 422, "script"),
        (StoreClosed(), 503, "store"),
        (NoAccess("data belongs to root"), 403, "no_access"),
        (refused(), 409, "refused"),
    ],
)
async def test_spywebs_errors_have_a_status_and_a_code(error: Exception, status: int, code: str) -> None:
    async with client_of(socket_app(FakeDaemonService(trouble=error))) as client:
        assert await get_json(client, "/api/jobs") == (status, failure(str(error), code))


@pytest.mark.parametrize("trouble", [PoolError("no room"), None])
async def test_who_finds_no_room_gives_the_connection_back(trouble: Exception | None) -> None:
    async with (
        client_of(socket_app(FakeDaemonService(trouble=trouble))) as client,
        client.get("/api/jobs") as answer,
    ):
        is_closed = answer.headers.get("Connection") == "close"
        assert (answer.status, is_closed) == ((503, True) if trouble else (200, False))


async def test_a_bug_is_told_to_nobody_but_the_log() -> None:
    async with client_of(socket_app(FakeDaemonService(trouble=KeyError("the secret")))) as client:
        assert await get_json(client, "/api/jobs") == (500, failure("Internal Server Error", "internal"))


async def test_a_browser_gets_a_page_on_which_text_is_text() -> None:
    trouble = refused("<script>alert(1)</script>")
    async with (
        client_of(socket_app(FakeDaemonService(trouble=trouble))) as client,
        client.get("/api/jobs", headers={"Accept": "text/html,*/*;q=0.8"}) as answer,
    ):
        assert (answer.status, answer.content_type) == (409, "text/html")
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in await answer.text()
