"""Checks in real workers: against a real server, and held by the limits of their job."""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.checks.settings import CheckKind, script_of
from spyweb.clock import RealClock
from spyweb.model import Ending, Failure, JobId, Outcome
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.network.client import open_client
from spyweb.settings.sections import HttpSettings
from tests.fakes.scripts import Scripts, open_scripts
from tests.fakes.web_server import WebServer, listening


@pytest.fixture
async def scripts(tmp_path: Path) -> AsyncIterator[Scripts]:
    async with open_client(HttpSettings(), RealClock()) as client, open_scripts(tmp_path, workers=1) as scripts:
        scripts.world = replace(scripts.world, http=client)
        yield scripts


async def check(scripts: Scripts, kind: CheckKind, values: Mapping[str, object], cpu_limit_ms: int = 10_000) -> Ending:
    run = await scripts.begin("site")
    request = scripts.request(run, script_of(kind)[1].decode(), "site", 20_000)
    arguments = ({"job": "site"}, False, {"timeout": 5, **values})
    host = OpDispatcher(scripts.call(run, JobId("site")))
    return await scripts.pool.run(replace(request, arguments=arguments, cpu_limit_ms=cpu_limit_ms), host)


async def test_a_site_is_asked_and_the_reason_of_a_failure_is_its_condition(
    scripts: Scripts, server: WebServer
) -> None:
    values = {"url": server.url("/redirect/1"), "expect": ["status == 200", "redirects == 1", "ip == '127.0.0.1'"]}
    ending = await check(scripts, CheckKind.HTTP, values)
    assert ending.outcome is Outcome.SUCCESS, ending.reason
    ending = await check(scripts, CheckKind.HTTP, {"url": server.url("/status/503")})
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, "status < 400 does not hold: status is 503")
    ending = await check(scripts, CheckKind.HTTP, {"url": "http://127.0.0.1:1/"})
    assert ending.reason == "could not connect to 127.0.0.1:1: Connection refused"


async def test_each_try_has_a_connection_of_its_own(scripts: Scripts) -> None:
    """Even where another job has left one that could be used again."""
    connections = 0

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(EOFError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    async with listening(serve) as port:
        url = f"http://127.0.0.1:{port}/"
        for _ in range(2):
            await scripts.succeed(f"assert(http_get('{url}'))", "other")
        assert connections == 1
        for _ in range(2):
            assert (await check(scripts, CheckKind.HTTP, {"url": url})).outcome is Outcome.SUCCESS
        assert connections == 3


@pytest.mark.parametrize(
    ("condition", "failure"),
    [
        ("(function() while true do end end)()", Failure.CPU),
        ("body:rep(1 << 27)", Failure.ERROR),
    ],
)
async def test_a_condition_is_held_by_the_limits_of_the_job(
    scripts: Scripts, server: WebServer, condition: str, failure: Failure
) -> None:
    """The first is refused as the settings are read."""
    values = {"url": server.url("/hello"), "expect": [condition]}
    ending = await check(scripts, CheckKind.HTTP, values, cpu_limit_ms=300)
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, failure), ending.reason
    assert (await check(scripts, CheckKind.HTTP, {"url": server.url("/hello")})).outcome is Outcome.SUCCESS
