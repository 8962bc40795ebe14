"""What a SOCKS proxy is asked for, and what is refused before; real proxies are in integration/test_http_socks.py."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
from python_socks import ProxyConnectionError, ProxyType
from yarl import URL

from spyweb.errors import FetchError
from spyweb.ops.network.address_check import AddressCheck
from spyweb.ops.network.own_sockets import OwnSockets
from spyweb.ops.network.resolver import Address, Resolver
from spyweb.ops.network.socks import BY_NAME, SocksProxy, open_connector
from tests.fakes.clock import FakeClock

Connect = Callable[..., Awaitable[socket.socket]]

ADDRESSES = {"proxy.test": "198.51.100.1", "inside.test": "10.0.0.1"}


def make_check(deny_private: bool = False) -> AddressCheck:
    return AddressCheck(own=OwnSockets(), deny_private=deny_private, gate=None)


def lookup(host: str) -> tuple[Address, ...]:
    if host not in ADDRESSES:
        raise OSError("no such host")
    return (Address(socket.AF_INET, ADDRESSES[host]),)


@dataclass
class FakeProxies:
    """Takes the place of python_socks' Proxy; it notes what each was made with and asked for."""

    made: list[tuple[object, ...]] = field(default_factory=list)
    asked: list[tuple[str, int]] = field(default_factory=list)
    error: Exception | None = None
    connected: socket.socket = field(default_factory=socket.socket)

    def make(
        self, kind: ProxyType, host: str, port: int, *, username: str | None, password: str, rdns: bool
    ) -> FakeProxies:
        self.made.append((kind, host, port, username, password, rdns))
        return self

    async def connect(self, host: str, port: int) -> socket.socket:
        self.asked.append((host, port))
        if self.error:
            raise self.error
        return self.connected


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProxies]:
    proxies = FakeProxies()
    monkeypatch.setattr("python_socks.async_.asyncio.Proxy", proxies.make)
    yield proxies
    proxies.connected.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect to port 443 of a host through a proxy."""
    resolver = Resolver(FakeClock(), lookup)

    async def connect(proxy: str, host: str = "93.184.215.14", *, deny_private: bool = False) -> socket.socket:
        return await SocksProxy(URL(proxy), resolver, make_check(deny_private)).connect(host, 443)

    yield connect
    await resolver.close()


@pytest.mark.parametrize(
    ("scheme", "kind", "by_name"),
    [
        ("socks4", ProxyType.SOCKS4, False),
        ("socks4a", ProxyType.SOCKS4, True),
        ("socks5", ProxyType.SOCKS5, False),
        ("socks5h", ProxyType.SOCKS5, True),
    ],
)
async def test_the_scheme_says_how_the_proxy_is_spoken_to(
    connect: Connect, proxies: FakeProxies, scheme: str, kind: ProxyType, by_name: bool
) -> None:
    assert await connect(f"{scheme}://proxy.test") is proxies.connected
    assert proxies.made == [(kind, "198.51.100.1", 1080, None, "", by_name)]
    assert proxies.asked == [("93.184.215.14", 443)]


async def test_the_proxy_is_told_who_asks_and_reached_at_its_port(connect: Connect, proxies: FakeProxies) -> None:
    await connect("socks5://me:secret@192.0.2.9:9050")
    assert proxies.made == [(ProxyType.SOCKS5, "192.0.2.9", 9050, "me", "secret", False)]


@pytest.mark.parametrize(
    "error", [ProxyConnectionError("closed"), OSError("reset"), ValueError("no"), AssertionError()]
)
async def test_what_the_proxy_does_wrong_is_a_failure_of_the_proxy(
    connect: Connect, proxies: FakeProxies, error: Exception
) -> None:
    proxies.error = error
    with pytest.raises(FetchError, match=r"the proxy could not connect to a\.test:443") as refused:
        await connect("socks5h://proxy.test", "a.test")
    assert refused.value.kind == "proxy"


async def test_a_proxy_whose_name_does_not_exist_is_a_failure_of_the_proxy(
    connect: Connect, proxies: FakeProxies
) -> None:
    with pytest.raises(FetchError, match=r"could not resolve nobody\.test: no such host") as refused:
        await connect("socks5://nobody.test")
    assert refused.value.kind == "proxy"
    assert proxies.asked == []


async def test_where_private_addresses_are_denied_no_proxy_leads_to_one(connect: Connect, proxies: FakeProxies) -> None:
    with pytest.raises(FetchError) as refused:
        await connect("socks5://192.0.2.9", "127.0.0.1", deny_private=True)
    assert refused.value.kind == "connect"
    with pytest.raises(FetchError, match=r"proxy inside\.test: 10\.0\.0\.1 is a private address"):
        await connect("socks5://inside.test", deny_private=True)
    assert proxies.asked == []


@pytest.mark.parametrize("scheme", ["socks4", "socks4a", "socks5", "socks5h"])
async def test_a_name_is_looked_up_here_or_left_to_the_proxy(scheme: str) -> None:
    resolver = Resolver(FakeClock(), lookup)
    connector = open_connector(URL(f"{scheme}://proxy.test"), resolver, make_check())

    found = await connector._resolve_host("inside.test", 443)

    assert [each["host"] for each in found] == ["inside.test" if scheme in BY_NAME else "10.0.0.1"]
    await connector.close()
    await resolver.close()
