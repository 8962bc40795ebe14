"""What goes wrong on the network, and the kind that a script sees."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from spyweb import descriptors
from spyweb.ops.network.certificate import machine_trust
from spyweb.ops.network.resolver import Address
from spyweb.settings.sections import HttpSettings
from tests.fakes.certificates import dhe_only
from tests.fakes.http_script import Fields, Script, open_script
from tests.fakes.web_server import WebServer, open_proxy, open_raw_server, open_web_server, unused_port


def lookup(host: str) -> tuple[Address, ...]:
    """Every name under .test is this machine; no other exists."""
    if not host.endswith(".test"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return (Address(socket.AF_INET, "127.0.0.1"),)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with open_script(HttpSettings(timeout_ms=5_000), lookup=lookup) as script:
        yield script


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_server(authority: trustme.CA) -> AsyncIterator[WebServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("one.test").configure_cert(context)
    async with open_web_server(context) as server:
        yield server


async def test_a_name_that_does_not_exist_is_dns(script: Script) -> None:
    error = await script.fail("http_get", b"http://nowhere.example/")
    assert error == {"kind": "dns", "error": "could not resolve nowhere.example: Name or service not known"}


async def test_a_connection_takes_none_of_the_last_descriptors(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_web_server() as server:
        monkeypatch.setattr(descriptors, "left", lambda: descriptors.RESERVE - 1)
        error = await script.fail("http_get", server.url("/").encode())
        assert error["kind"] == "connect"
        assert "Too many open files" in str(error["error"])
        monkeypatch.undo()
        assert await script.ask("http_get", server.url("/").encode())


@pytest.mark.parametrize("host", ["xn--", "xn--0.invalid", "XN--.invalid", "a.xn--.b"])
async def test_a_host_that_is_bad_punycode_is_a_name_like_any_other(script: Script, host: str) -> None:
    error = await script.fail("http_get", f"http://{host}/".encode())
    assert error == {"kind": "dns", "error": f"could not resolve {host.lower()}: Name or service not known"}


async def test_a_port_where_nobody_listens_is_connect(script: Script) -> None:
    port = unused_port()
    error = await script.fail("http_get", b"http://127.0.0.1:%d/" % port)
    assert error["kind"] == "connect"
    assert str(error["error"]).startswith(f"could not connect to 127.0.0.1:{port}: ")


@pytest.mark.parametrize("path", ["/silence", "/drip"])
async def test_the_timeout_covers_silence_and_a_byte_now_and_then(server: WebServer, script: Script, path: str) -> None:
    error = await script.fail("http_request", {b"url": server.url(path).encode(), b"timeout": 0.2})
    assert error == {"kind": "timeout", "error": "no complete response within 0.2 s"}


async def test_the_timeout_covers_the_head_and_the_redirects(script: Script) -> None:
    async with open_raw_server(b"HTTP/1.1 200 OK\r\nX-Slow", hang=True) as raw:
        error = await script.fail("http_request", {b"url": raw.url("/").encode(), b"timeout": 0.1})
    assert error["kind"] == "timeout"


async def test_a_cancelled_request_lets_go_of_its_connection(server: WebServer, script: Script) -> None:
    async with asyncio.TaskGroup() as group:
        request = group.create_task(script.ask("http_get", server.url("/silence").encode()))
        await server.asked.wait()
        request.cancel()
    assert request.cancelled()
    assert (await script.ask("http_get", server.url("/hello").encode()))["status"] == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 1000 + b"\r\n",
    ],
    ids=["ssh", "status", "short body", "chunk", "header flood"],
)
async def test_a_response_that_is_no_http_is_http_in_one_line(script: Script, answer: bytes) -> None:
    async with open_raw_server(answer) as raw:
        error = await script.fail("http_get", raw.url("/").encode())
    assert error["kind"] == "http"
    assert "\n" not in str(error["error"])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"Content-Length: 100000\r\n\r\n" + b"x" * 29, "the server closed after 29 of 100000 bytes"),
        (b"Content-Length: 8\r\nContent-Encoding: gzip\r\n\r\n\x1f", "the server closed after 1 of 8 bytes"),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "the server closed before the end of the body"),
    ],
)
async def test_a_body_that_was_cut_tells_how_far_it_came(script: Script, answer: bytes, text: str) -> None:
    async with open_raw_server(b"HTTP/1.1 200 OK\r\n" + answer) as raw:
        error = await script.fail("http_get", raw.url("/").encode())
    assert error == {"kind": "http", "error": text}


INTERIM = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", b"\r\n\r\n"]


@pytest.mark.parametrize("interim", INTERIM)
async def test_interim_answers_without_end_of_a_proxy_are_http(script: Script, interim: bytes) -> None:
    async with open_raw_server(interim * 100, hang=True) as raw:
        options = {b"url": b"https://far.example/", b"proxy": raw.url("").encode()}
        error = await script.fail("http_request", options)
    assert (error["kind"], error["error"]) == ("http", "more than 10 interim answers before the answer")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nX-Half: 1\r\n"])
async def test_a_server_that_closes_before_its_head_is_whole_is_connect(script: Script, answer: bytes) -> None:
    async with open_raw_server(answer) as raw:
        error = await script.fail("http_get", raw.url("/").encode())
    assert error == {"kind": "connect", "error": "the server closed without a whole answer"}


async def test_a_certificate_that_nobody_vouches_for_is_tls(tls_server: WebServer, script: Script) -> None:
    error = await script.fail("http_get", tls_server.url("/hello", "one.test", "https").encode())
    assert error["kind"] == "tls"
    assert "certificate" in str(error["error"])


async def test_no_key_is_exchanged_with_a_modulus_of_the_servers_choice(
    authority: trustme.CA, tls_server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    machine_trust.cache_clear()
    context = dhe_only(authority, "one.test", 2_048, tmp_path)
    try:
        async with open_web_server(context) as server, open_script(lookup=lookup) as script:
            error = await script.fail("http_get", server.url("/hello", "one.test", "https").encode())
            response = await script.ask("http_get", tls_server.url("/hello", "one.test", "https").encode())
    finally:
        machine_trust.cache_clear()
    assert response["body"] == b"hello"
    assert error["kind"] in ("tls", "connect")  # asyncio's servers close without an alert


async def test_a_plain_server_behind_https_is_tls(server: WebServer, script: Script) -> None:
    error = await script.fail("http_get", server.url("/hello", "one.test", "https").encode())
    assert error["kind"] == "tls"


async def test_a_certificate_for_another_name_is_tls(tls_server: WebServer, authority: trustme.CA) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with open_script(lookup=lookup, tls=context) as script:
        good = await script.ask("http_get", tls_server.url("/hello", "one.test", "https").encode())
        error = await script.fail("http_get", tls_server.url("/hello", "two.test", "https").encode())
    assert good["body"] == b"hello"
    assert error["kind"] == "tls"


async def test_a_proxy_is_asked_and_named_without_its_password(server: WebServer, script: Script) -> None:
    async with open_proxy() as proxy:
        options = {b"url": server.url("/hello", "far.example").encode()}
        options[b"proxy"] = proxy.url("", "me:secret@one.test").encode()
        response = await script.ask("http_request", options)
    assert response["body"] == b"hello"
    assert proxy.story[0].startswith(f"GET http://far.example:{server.port}/hello HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6c2VjcmV0" in proxy.story[0]
    assert "secret" not in str(response["headers"])


async def test_https_goes_through_a_tunnel(tls_server: WebServer, authority: trustme.CA) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with open_proxy() as proxy, open_script(lookup=lookup, tls=context) as script:
        options = {b"url": tls_server.url("/hello", "one.test", "https").encode(), b"proxy": proxy.url("").encode()}
        response = await script.ask("http_request", options)
    assert response["body"] == b"hello"
    assert proxy.story[0].startswith(f"CONNECT one.test:{tls_server.port} HTTP/1.1\r\n")


async def test_a_proxy_that_refuses_is_proxy(script: Script) -> None:
    async with open_raw_server(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n") as raw:
        address = raw.url("", "me:secret@127.0.0.1").encode()
        error = await script.fail("http_request", {b"url": b"https://far.example/", b"proxy": address})
    assert error["kind"] == "proxy"
    assert error["proxy"] == raw.url("")


@pytest.mark.parametrize("rest", [b"HTTP/1.1 200 OK\r\n\r\n" * 9, b"x" * 99])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_proxy_that_goes_on_talking_about_its_tunnel_is_proxy(
    run: Callable[[Coroutine[Any, Any, Fields]], Fields], rest: bytes
) -> None:
    complaints: list[object] = []

    async def story() -> Fields:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + rest
        async with open_raw_server(answer, hang=True) as raw, open_script() as script:
            options = {b"url": b"https://far.example/", b"proxy": raw.url("").encode(), b"timeout": 5}
            return await script.fail("http_request", options)

    error = run(story())
    assert (error["kind"], error["error"]) == ("proxy", "the proxy closed its tunnel before it was used")
    assert complaints == []


@pytest.mark.parametrize(
    "proxy",
    [
        b"http://127.0.0.1:1",
        b"http://nowhere.example:80",
        b"http://xn--:80",
        b"socks5://xn--:80",
        b"socks5://127.0.0.1:1",
        b"ftp://x",
        b"none",
    ],
)
async def test_a_proxy_that_can_not_be_used_is_proxy(script: Script, proxy: bytes) -> None:
    error = await script.fail("http_request", {b"url": b"http://one.test/", b"proxy": proxy})
    assert error["kind"] == "proxy"


async def test_many_requests_to_a_silent_host_leave_room_for_others(server: WebServer, script: Script) -> None:
    """The limit is by host and port: the raw server is another."""
    async with open_raw_server(hang=True) as silent, asyncio.TaskGroup() as group:
        url = silent.url("/").encode()
        waiting = [group.create_task(script.ask("http_get", url)) for _ in range(300)]
        assert (await script.ask("http_get", server.url("/hello").encode()))["status"] == 200
        for request in waiting:
            request.cancel()
    for request in waiting:
        with contextlib.suppress(asyncio.CancelledError):
            await request


async def test_a_name_that_hangs_ends_at_the_requests_timeout() -> None:
    answered = threading.Event()

    def lookup(host: str) -> tuple[Address, ...]:
        answered.wait(20)
        return ()

    async with open_script(lookup=lookup) as script:
        try:
            error = await script.fail("http_request", {b"url": b"http://bad.test/", b"timeout": 0.1})
        finally:
            answered.set()
    assert error["kind"] == "timeout"


async def test_a_name_without_any_address_is_an_error() -> None:
    async with open_script(lookup=lambda host: ()) as script:
        error = await script.fail("http_get", b"http://empty.test/")
    assert error["kind"] == "dns"
