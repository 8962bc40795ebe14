"""Nothing that a server sends can fill the daemon's memory."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from spyweb.clock import RealClock
from spyweb.model import MIB
from spyweb.ops.network.client import open_client
from spyweb.ops.network.request import Fetch, parse_url
from spyweb.settings.sections import HttpSettings
from tests.fakes.http_script import Script, open_script
from tests.fakes.web_server import WebServer, open_raw_server

TOO_LARGE = {"kind": "size", "error": "the response is larger than 10 MB"}


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with open_script() as script:
        yield script


@pytest.mark.parametrize(
    "path", ["/bomb/gzip", "/bomb/deflate", "/bomb/br", "/bomb/zstd", "/large?mb=100", "/large?mb=100&chunked=1"]
)
async def test_a_body_over_the_limit_is_cut_off_before_it_is_held(server: WebServer, script: Script, path: str) -> None:
    await script.ask("http_get", server.url("/hello").encode())
    tracemalloc.start()
    try:
        error = await script.fail("http_get", server.url(path).encode())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error == TOO_LARGE
    assert peak < 32 * MIB


async def test_a_script_may_allow_more_or_less(server: WebServer, script: Script) -> None:
    url = server.url("/large?mb=12").encode()
    more = await script.ask("http_request", {b"url": url, b"max_body_size": 12})
    less = await script.fail("http_request", {b"url": url, b"max_body_size": 0.5})
    assert more["size"] == 12 * MIB
    assert less == {"kind": "size", "error": "the response is larger than 0.5 MB"}


async def test_a_body_that_unpacks_to_nothing_has_an_end(script: Script) -> None:
    nothing = gzip.compress(b"")[:10] + b"\x00\x00\x00\xff\xff" * 300_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + nothing
    async with open_raw_server(answer, hang=True) as raw, asyncio.timeout(5):
        error = await script.fail("http_request", {b"url": raw.url("/").encode(), b"max_body_size": 1})
    assert error == {"kind": "size", "error": "the response is larger than 1 MB"}


async def test_a_body_in_small_chunks_gives_way_to_others() -> None:
    class Counting(RealClock):
        turns = 0

        async def sleep(self, seconds: float) -> None:
            self.turns += not seconds
            await super().sleep(seconds)

    clock = Counting()
    chunks = b"20\r\n" + b"a" * 32 + b"\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks * 32_768 + b"0\r\n\r\n"
    async with open_raw_server(answer) as raw, open_client(HttpSettings(), clock) as client:
        fetch = Fetch(url=parse_url(raw.url("/").encode()), timeout_s=20, largest=10 * MIB)
        response = await client.fetch(fetch)
    assert len(response.body) == MIB
    assert clock.turns >= 60


@pytest.mark.parametrize("path", ["/large?mb=1", "/large?mb=1&chunked=1"])
async def test_a_body_of_just_the_limit_fits(server: WebServer, script: Script, path: str) -> None:
    response = await script.ask("http_request", {b"url": server.url(path).encode(), b"max_body_size": 1})
    assert response["size"] == MIB


async def test_no_script_is_given_more_than_its_vm_holds(server: WebServer) -> None:
    async with open_script(memory_limit=2 * MIB) as script:
        error = await script.fail("http_request", {b"url": server.url("/large?mb=3").encode(), b"max_body_size": 100})
    assert error["kind"] == "size"


async def test_the_connection_of_a_cut_off_body_is_not_used_again(server: WebServer, script: Script) -> None:
    await script.fail("http_get", server.url("/large?mb=100&chunked=1").encode())
    assert (await script.ask("http_get", server.url("/hello").encode()))["body"] == b"hello"
