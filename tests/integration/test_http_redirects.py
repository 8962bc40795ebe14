"""Redirects: how many, where to, and what goes along."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from spyweb.model import MIB
from spyweb.ops.network.resolver import Address
from tests.fakes.http_script import Script, body_of, open_script, sent_headers
from tests.fakes.web_server import WebServer, listening, open_raw_server

SECRETS = {b"Authorization": b"Bearer x", b"Cookie": b"a=1", b"X-Trace": b"7"}


def lookup(host: str) -> tuple[Address, ...]:
    return (Address(socket.AF_INET, "127.0.0.1"),)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with open_script(lookup=lookup) as script:
        yield script


def leading_to(server: WebServer, target: str, status: int = 302, host: str = "one.test") -> bytes:
    return server.url(f"/redirect-to?status={status}&url={quote(target, safe='')}", host).encode()


async def test_ten_redirects_are_followed(server: WebServer, script: Script) -> None:
    response = await script.ask("http_get", server.url("/redirect/10").encode())
    assert response["redirects"] == 10
    assert response["url"] == server.url("/echo").encode()
    assert len(server.story) == 11


async def test_an_eleventh_is_not(server: WebServer, script: Script) -> None:
    error = await script.fail("http_get", server.url("/redirect/11").encode())
    last = server.url("/redirect/1")
    assert error == {"kind": "http", "error": f"too many redirects: more than 10, the last at {last}"}


async def test_secrets_stay_with_the_host_they_were_for(server: WebServer, script: Script) -> None:
    kept = await script.ask("http_get", leading_to(server, server.url("/echo", "one.test")), SECRETS)
    dropped = await script.ask("http_get", leading_to(server, server.url("/echo", "two.test")), SECRETS)
    assert sent_headers(kept)["authorization"] == "Bearer x"
    assert sent_headers(dropped).keys().isdisjoint({"authorization", "cookie"})
    assert sent_headers(dropped)["x-trace"] == "7"


async def test_a_host_header_is_for_the_first_host_alone(server: WebServer, script: Script) -> None:
    given = {b"host": b"shop.example"}
    here = await script.ask("http_get", leading_to(server, server.url("/echo", "one.test")), given)
    elsewhere = await script.ask("http_get", leading_to(server, server.url("/echo", "two.test")), given)
    assert sent_headers(here)["host"] == "shop.example"
    assert sent_headers(elsewhere)["host"] == f"two.test:{server.port}"


async def test_a_password_in_the_address_stays_too(server: WebServer, script: Script) -> None:
    url = leading_to(server, server.url("/echo", "two.test"), host="me:secret@one.test")
    assert "authorization" not in sent_headers(await script.ask("http_get", url))


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "ftp://one.test/",
        "javascript:alert(1)",
        "http://[::1",
        "http://[]@",
        "http://one.test:port/",
        "http:///x",
    ],
)
async def test_a_redirect_that_leads_nowhere_sensible_is_http(server: WebServer, script: Script, target: str) -> None:
    error = await script.fail("http_get", leading_to(server, target))
    assert error["kind"] == "http"
    assert len(server.story) == 1


async def test_a_byte_that_is_no_utf8_goes_along_percent_encoded(server: WebServer, script: Script) -> None:
    target = server.url("/echo?q=").encode() + b"\xe9&r=1"
    async with open_raw_server(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + target + b"\r\n\r\n") as raw:
        response = await script.ask("http_get", raw.url("/").encode())
    assert json.loads(body_of(response))["path"] == "/echo?q=%E9&r=1"
    assert response["url"] == server.url("/echo?q=%E9&r=1").encode()


async def test_the_escapes_of_a_query_arrive_as_they_are(server: WebServer, script: Script) -> None:
    url = server.url("/echo?sig=a%2Fb%3A%7e&at=1%3A2")
    asked = await script.ask("http_get", url.encode())
    async with open_raw_server(
        b"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: " + url.encode() + b"\r\n\r\n"
    ) as raw:
        led = await script.ask("http_get", raw.url("/").encode())
    for response in (asked, led):
        assert response["url"] == url.encode()
        assert json.loads(body_of(response))["path"] == "/echo?sig=a%2Fb%3A%7e&at=1%3A2"


@pytest.mark.parametrize(
    ("status", "method", "size"), [(301, "GET", 0), (303, "GET", 0), (307, "POST", 5), (308, "POST", 5)]
)
async def test_a_post_goes_along_only_where_the_status_says_so(
    server: WebServer, script: Script, status: int, method: str, size: int
) -> None:
    response = await script.ask("http_post", leading_to(server, "/echo", status), b"a=1&b")
    echoed = json.loads(body_of(response))
    assert (echoed["method"], len(base64.b64decode(echoed["body"]))) == (method, size)


@pytest.mark.parametrize(("status", "kept"), [(301, False), (302, False), (303, False), (307, True), (308, True)])
async def test_what_describes_the_body_goes_where_the_body_goes(
    server: WebServer, script: Script, status: int, kept: bool
) -> None:
    headers = {b"Content-Type": b"text/plain", b"Content-Language": b"en", b"X-Trace": b"7"}
    sent = sent_headers(await script.ask("http_post", leading_to(server, "/echo", status), b"a", headers))
    assert [name in sent for name in ("content-type", "content-language", "x-trace")] == [kept, kept, True]


async def test_a_get_may_describe_a_body_that_it_has_not(server: WebServer, script: Script) -> None:
    sent = sent_headers(await script.ask("http_get", leading_to(server, "/echo"), {b"Content-Type": b"text/plain"}))
    assert sent["content-type"] == "text/plain"


async def test_a_large_body_goes_along_whole(server: WebServer, script: Script) -> None:
    body = b"0123456789abcdef" * (2 * MIB // 16)
    response = await script.ask("http_post", leading_to(server, "/echo", 307), body)
    assert base64.b64decode(json.loads(body_of(response))["body"]) == body


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_a_server_that_closes_without_a_word_is_asked_again_at_each_hop(script: Script, method: bytes) -> None:
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            to = len(heads)
            writer.write(b"HTTP/1.1 %d X\r\nLocation: /%d\r\nContent-Length: 0\r\n\r\n" % (302 if to < 5 else 200, to))
            await writer.drain()
        writer.close()

    async with listening(serve) as port:
        url = f"http://127.0.0.1:{port}"
        response = await script.ask("http_request", {b"url": f"{url}/0".encode(), b"method": method})
    assert (response["status"], response["url"]) == (200, f"{url}/4".encode())
    assert len(heads) == 5


async def test_a_hop_that_gets_no_answer_at_all_is_given_up(script: Script) -> None:
    async with open_raw_server(b"") as silent:
        target = silent.url("/").encode()
        async with open_raw_server(b"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: " + target + b"\r\n\r\n") as raw:
            error = await script.fail("http_get", raw.url("/").encode())
    assert error == {"kind": "connect", "error": "the server closed without a whole answer"}
