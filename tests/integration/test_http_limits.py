"""Nothing that a server sends can fill the daemon's memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator

import pytest

from spyweb.model import MIB
from tests.fakes.http_script import Script, open_script
from tests.fakes.web_server import WebServer

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
