"""The daemon itself, and what is inside, as jobs and foreign servers try to reach it by the HTTP client."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from spyweb.clock import RealClock
from spyweb.errors import OpError
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.network import address_check
from spyweb.ops.network.client import HttpClient, open_client
from spyweb.ops.network.resolver import Address, ask_system
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Grants, policy_of
from spyweb.settings.sections import HttpSettings
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.daemon_socket import serve_tcp
from tests.fakes.http_script import plays_public
from tests.fakes.ops import make_call, make_world
from tests.fakes.socks_server import open_socks_server
from tests.fakes.web_server import WebServer, open_proxy

NAMES = {"me.test": "127.0.0.1", "out.test": "127.0.0.1", "in.test": "127.0.0.2"}


def lookup(host: str) -> tuple[Address, ...]:
    return (Address(socket.AF_INET, NAMES[host]),) if host in NAMES else ask_system(host)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attacker has: a daemon without a key, a server of their own, and proxies."""

    client: HttpClient
    service: FakeDaemonService
    port: int
    server: WebServer
    http_proxy: str
    socks: Callable[[str], str]

    async def ask(self, op: str, *arguments: object, net: tuple[str, ...] = ("*",)) -> object:
        """Return the error of an op, raised or not, else its response."""
        policy = policy_of(Grants(net=read_net(net)))
        host = OpDispatcher(make_call(make_world(http=self.client), policy=policy))
        try:
            response, error = await host.op(op, arguments)
        except OpError as refused:
            return str(refused)
        return error["error"] if isinstance(error, dict) else error or response

    async def request(self, url: str, *, net: tuple[str, ...] = ("*",), method: bytes = b"POST", **more: str) -> object:
        options = {name.encode(): value.encode() for name, value in more.items()}
        return await self.ask("http_request", {b"url": url.encode(), b"method": method, **options}, net=net)

    def own(self, path: str = "/api/jobs/prices/pause", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def redirect(self, target: str, host: str = "127.0.0.1", status: int = 307) -> str:
        return self.server.url(f"/redirect-to?status={status}&url={quote(target, safe='')}", host)


@pytest.fixture
async def attempt(server: WebServer) -> AsyncIterator[Attempt]:
    service = FakeDaemonService()
    async with AsyncExitStack() as stack:
        listening = await stack.enter_async_context(serve_tcp(service, host="127.0.0.1", port=0))
        settings = HttpSettings(timeout_ms=5_000)
        client = await stack.enter_async_context(open_client(settings, RealClock(), service.own_sockets, lookup=lookup))
        http_proxy = await stack.enter_async_context(open_proxy())
        socks = await stack.enter_async_context(open_socks_server())
        yield Attempt(client, service, listening.port, server, http_proxy.url(""), socks.url)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "me.test", "2130706433", "127.9.9.9", "0.0.0.0", "[::ffff:127.0.0.1]"]
)
@pytest.mark.parametrize(
    "way", ["direct", "redirect", "http", "socks4", "socks5", "socks5h", "as proxy", "tls", "tcp", "dns"]
)
async def test_no_way_leads_to_the_daemon(attempt: Attempt, host: str, way: str) -> None:
    url = attempt.own(host=host)
    match way:
        case "direct":
            found = await attempt.request(url)
        case "redirect":
            found = await attempt.request(attempt.redirect(url))
        case "http":
            found = await attempt.request(url, proxy=attempt.http_proxy)
        case "as proxy":
            found = await attempt.request("http://out.test/api/jobs/prices/pause", proxy=attempt.own("", host))
        case "tls":
            found = await attempt.ask("tls_probe", host.encode(), attempt.port)
        case "tcp":
            found = await attempt.ask("tcp_probe", host.encode(), attempt.port, {b"send": b"GET / HTTP/1.0\r\n\r\n"})
        case "dns":
            server = f"{host}:{attempt.port}".encode()
            found = await attempt.ask("dns_query", b"out.test", b"A", {b"server": server})
        case _:
            found = await attempt.request(url, proxy=attempt.socks(way))
    assert any(words in str(found) for words in ("which is this daemon", "not a canonical IPv4 address"))
    assert attempt.service.story == []


async def test_a_connection_that_is_open_is_not_ridden_by_another_job(attempt: Attempt) -> None:
    named = ("*", f"me.test:{attempt.port}")
    url = attempt.own("/healthz", "me.test")
    assert isinstance(await attempt.request(url, net=named, method=b"GET"), dict)
    assert "which is this daemon" in str(await attempt.request(url, method=b"GET"))


@pytest.mark.parametrize("host", ["in.test", "127.0.0.2"])
async def test_a_public_server_redirects_nobody_inside(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """127.0.0.1 plays the public address here, 127.0.0.2 the private one, where nobody listens."""
    monkeypatch.setattr(address_check, "is_public", plays_public)
    inside = attempt.server.url("/hello", host)
    for proxy in ("", attempt.http_proxy) if host != "in.test" else ("",):
        found = await attempt.request(attempt.redirect(inside, "out.test"), proxy=proxy)
        assert f"may not be redirected by a public host to {host}:{attempt.server.port}" in str(found)
    for net, url in (
        (("*", host), attempt.redirect(inside, "out.test")),
        (("*", "127.0.0.2/32"), attempt.redirect(inside, "out.test")),
        (("*",), inside),
    ):
        assert "could not connect" in str(await attempt.request(url, net=net))
