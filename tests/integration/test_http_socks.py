"""Requests through SOCKS proxies: who looks a name up, what can go wrong, and what deny_private still closes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import trustme

from spyweb.ops.network import address_check
from spyweb.ops.network.resolver import Address
from spyweb.settings.sections import HttpSettings
from tests.fakes.http_script import Fields, Script, body_of, open_script
from tests.fakes.socks_server import NO_SUCH_HOST, SocksServer, open_socks_server
from tests.fakes.web_server import WebServer, open_raw_server, open_web_server

STRICT = HttpSettings(deny_private=True, timeout_ms=5_000)


def lookup(host: str) -> tuple[Address, ...]:
    """One public name, one that leads inside, and the proxy's own."""
    addresses = {"public.example": "93.184.215.14", "inside.example": "10.0.0.1", "proxy.example": "127.0.0.1"}
    if host not in addresses:
        raise OSError("no such host")
    return (Address(socket.AF_INET, addresses[host]),)


@pytest.fixture
async def proxy() -> AsyncIterator[SocksServer]:
    async with open_socks_server() as proxy:
        yield proxy


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with open_script(HttpSettings(timeout_ms=5_000), lookup=lookup) as script:
        yield script


def through(proxy: str, url: str, **options: object) -> dict[bytes, object]:
    more = {name.encode(): value for name, value in options.items()}
    return {b"url": url.encode(), b"proxy": proxy.encode(), **more}


@pytest.mark.parametrize(
    ("scheme", "asked"),
    [
        ("socks4", "4 93.184.215.14:{}"),
        ("socks4a", "4 public.example:{}"),
        ("socks5", "5 93.184.215.14:{}"),
        ("socks5h", "5 public.example:{}"),
        ("SOCKS5H", "5 public.example:{}"),
    ],
)
async def test_the_scheme_says_who_looks_the_name_up(
    server: WebServer, proxy: SocksServer, script: Script, scheme: str, asked: str
) -> None:
    response = await script.ask("http_request", through(proxy.url(scheme), server.url("/hello", "public.example")))
    assert body_of(response) == b"hello"
    assert proxy.asked == [asked.format(server.port)]


async def test_a_name_that_only_the_proxy_knows_is_reached(
    server: WebServer, proxy: SocksServer, script: Script
) -> None:
    response = await script.ask("http_request", through(proxy.url("socks5h"), server.url("/hello", "hidden.onion")))
    assert response["status"] == 200
    error = await script.fail("http_request", through(proxy.url("socks5"), server.url("/hello", "hidden.onion")))
    assert error["error"] == "could not resolve hidden.onion: no such host"
    assert proxy.asked == [f"5 hidden.onion:{server.port}"]


async def test_a_body_is_sent_and_redirects_are_followed_through_it(
    server: WebServer, proxy: SocksServer, script: Script
) -> None:
    url = server.url("/redirect/2", "public.example")
    response = await script.ask("http_request", through(proxy.url("socks5"), url, method=b"POST", body=b"x" * 100))
    assert str(response["url"]).endswith("/echo'")
    assert len(proxy.asked) == 3


async def test_tls_is_with_the_far_side() -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("public.example").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with (
        open_web_server(tls) as server,
        open_socks_server() as proxy,
        open_script(lookup=lookup, tls=trusting) as script,
    ):
        good = through(proxy.url("socks5"), server.url("/hello", "public.example", "https"))
        assert body_of(await script.ask("http_request", good)) == b"hello"
        wrong = through(proxy.url("socks5h"), server.url("/hello", "other.example", "https"))
        assert (await script.fail("http_request", wrong))["kind"] == "tls"


async def test_a_user_and_a_password_are_given_to_it_and_never_shown(server: WebServer, script: Script) -> None:
    async with open_socks_server(password=(b"me", b"p@ss")) as proxy:
        url = server.url("/hello", "public.example")
        assert await script.ask("http_request", through(proxy.url("socks5", "me:p%40ss@"), url))
        for user in ("", "me:wrong@"):
            error = await script.fail("http_request", through(proxy.url("socks5", user), url))
            assert error["kind"] == "proxy"
            assert error["proxy"] == proxy.url("socks5")
            assert "wrong" not in str(error["error"])


async def test_version_4_is_told_the_user(server: WebServer, proxy: SocksServer, script: Script) -> None:
    await script.ask("http_request", through(proxy.url("socks4", "me@"), server.url("/hello", "public.example")))
    assert proxy.asked == [f"4 93.184.215.14:{server.port} me"]


async def fail_through(script: Script, proxy: str) -> Fields:
    error = await script.fail("http_request", through(proxy, "http://public.example/"))
    assert "\n" not in str(error["error"])
    return error


@pytest.mark.parametrize("scheme", ["socks4", "socks4a", "socks5", "socks5h"])
async def test_what_the_proxy_does_wrong_is_proxy(script: Script, scheme: str) -> None:
    async with open_socks_server(reply=NO_SUCH_HOST) as refusing:
        assert (await fail_through(script, refusing.url(scheme)))["kind"] == "proxy"
    for garbage in (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10, b"\x05", b"\xff" * 100, b"\x05\x02\x00" * 50):
        async with open_socks_server(garbage=garbage) as broken:
            assert (await fail_through(script, broken.url(scheme)))["kind"] == "proxy"
    assert (await fail_through(script, f"{scheme}://127.0.0.1:1"))["kind"] == "proxy"
    assert (await fail_through(script, f"{scheme}://nowhere.example"))["kind"] == "proxy"


async def test_a_proxy_that_says_nothing_is_a_timeout(script: Script) -> None:
    async with open_raw_server(hang=True) as silent:
        options = through(f"socks5://proxy.example:{silent.port}", "http://public.example/", timeout=0.2)
        error = await script.fail("http_request", options)
    assert error["kind"] == "timeout"
    assert error["proxy"] == f"socks5://proxy.example:{silent.port}"


@pytest.fixture
def public_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1, where the proxy is, plays a public address."""
    is_public = address_check.is_public
    monkeypatch.setattr(address_check, "is_public", lambda address: address == "127.0.0.1" or is_public(address))


@pytest.mark.usefixtures("public_proxy")
@pytest.mark.parametrize("scheme", ["socks4", "socks5"])
async def test_with_deny_private_a_name_that_leads_inside_is_refused_where_it_is_looked_up_here(
    server: WebServer, proxy: SocksServer, scheme: str
) -> None:
    async with open_script(STRICT, lookup=lookup) as script:
        url = server.url("/hello", "inside.example")
        error = await script.fail("http_request", through(proxy.url(scheme), url))
        assert error["kind"] == "connect"
        assert "10.0.0.1 is a private address" in str(error["error"])
        assert await script.ask("http_request", through(proxy.url(scheme), server.url("/hello", "public.example")))
    assert len(proxy.asked) == 1


@pytest.mark.usefixtures("public_proxy")
@pytest.mark.parametrize("host", ["127.0.0.2", "localhost", "a.localhost", "[::1]", "10.0.0.1", "169.254.169.254"])
async def test_with_deny_private_a_private_address_is_refused_at_every_hop(
    server: WebServer, proxy: SocksServer, host: str
) -> None:
    target = quote(server.url("/hello", host), safe="")
    async with open_script(STRICT, lookup=lookup) as script:
        for url in (server.url("/hello", host), server.url(f"/redirect-to?url={target}", "public.example")):
            error = await script.fail("http_request", through(proxy.url("socks5h"), url))
            assert error["kind"] == "connect"
    assert proxy.asked == [f"5 public.example:{server.port}"]


async def test_with_deny_private_a_proxy_inside_is_refused(server: WebServer, proxy: SocksServer) -> None:
    async with open_script(STRICT, lookup=lookup) as script:
        for name in (proxy.url("socks5h"), f"socks5h://proxy.example:{proxy.port}"):
            error = await script.fail("http_request", through(name, server.url("/hello", "public.example")))
            assert error["kind"] == "proxy"
            assert "private address" in str(error["error"])
    assert proxy.asked == []
