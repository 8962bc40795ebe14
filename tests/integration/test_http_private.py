"""`[http] deny_private`: no spelling, name, redirect or proxy leads into the machine's own networks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from spyweb.ops.network import address_check
from spyweb.ops.network.resolver import Address, ask_system
from spyweb.settings.sections import HttpSettings
from tests.fakes.http_script import Script, open_script, plays_public
from tests.fakes.web_server import WebServer, open_raw_server

STRICT = HttpSettings(deny_private=True, timeout_ms=5_000)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with open_script(STRICT, lookup=ask_system) as script:
        yield script


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f000001",
        "0x7f.1",
        "0",
        "0.0.0.0",
        "localhost",
        "LOCALHOST.",
        "anything.localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1%25lo]",
        "①②⑦.⓪.⓪.①",
        "example.com@127.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "224.0.0.1",
        "255.255.255.255",
    ],
)
async def test_no_spelling_of_a_private_address_gets_through(server: WebServer, script: Script, host: str) -> None:
    error = await script.fail("http_get", server.url("/hello", host).encode())
    assert error["kind"] in ("connect", "http", "dns")
    assert server.story == []


async def test_the_error_says_why(server: WebServer, script: Script) -> None:
    error = await script.fail("http_get", server.url("/hello").encode())
    assert error == {
        "kind": "connect",
        "error": f"could not connect to 127.0.0.1:{server.port}: "
        "127.0.0.1 is a private address, and [http] deny_private is set",
    }


async def test_a_name_that_leads_inside_is_refused_at_every_connection(server: WebServer) -> None:
    """Rebinding: it is the address of the socket that counts, not one that was looked up before."""

    def lookup(host: str) -> tuple[Address, ...]:
        return (Address(socket.AF_INET, "127.0.0.1"), Address(socket.AF_INET6, "::ffff:10.0.0.1"))

    async with open_script(STRICT, lookup=lookup) as script:
        error = await script.fail("http_get", server.url("/hello", "rebound.example").encode())
    assert error["kind"] == "connect"
    assert server.story == []


async def test_a_redirect_inside_is_refused(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 plays the public address here, 127.0.0.2 the private one."""
    monkeypatch.setattr(address_check, "is_public", plays_public)
    target = quote(server.url("/hello", "127.0.0.2"), safe="")
    async with open_script(STRICT) as script:
        error = await script.fail("http_get", server.url(f"/redirect-to?url={target}").encode())
    assert error["kind"] == "connect"
    assert server.story == ["GET /redirect-to"]


async def test_a_proxy_inside_is_refused(server: WebServer, script: Script) -> None:
    options = {b"url": b"http://example.com/", b"proxy": server.url("").encode()}
    error = await script.fail("http_request", options)
    assert error["kind"] == "proxy"
    assert server.story == []


async def test_a_name_that_is_bad_punycode_is_left_to_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_check, "is_public", plays_public)
    async with open_script(STRICT) as script, open_raw_server(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n") as raw:
        response = await script.ask("http_request", {b"url": b"http://xn--.example/", b"proxy": raw.url("").encode()})
    assert response["status"] == 404


async def test_without_the_setting_loopback_is_an_address_like_any_other(server: WebServer) -> None:
    async with open_script() as script, asyncio.timeout(5):
        assert (await script.ask("http_get", server.url("/hello", "localhost").encode()))["status"] == 200
