"""Errors as HTTP answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiohttp import web

from spyweb.errors import ConfigError, NoAccess, Problem, ScriptError, StoreClosed
from spyweb.web.app import socket_app, tcp_app
from tests.fakes.client import client_of, get_json
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
@pytest.mark.parametrize("make_app", [socket_app, lambda service: tcp_app(service, None)])
async def test_spywebs_errors_have_a_status_and_a_code(
    error: Exception, status: int, code: str, make_app: Callable[[FakeDaemonService], web.Application]
) -> None:
    async with client_of(make_app(FakeDaemonService(trouble=error))) as client:
        assert await get_json(client, "/api/jobs") == (status, {"error": str(error), "code": code})


async def test_a_bug_is_told_to_nobody_but_the_log() -> None:
    async with client_of(socket_app(FakeDaemonService(trouble=KeyError("the secret")))) as client:
        assert await get_json(client, "/api/jobs") == (500, {"error": "Internal Server Error"})
