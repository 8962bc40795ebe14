"""Connect through a SOCKS proxy, which handles each connection.

`socks4` and `socks5` get an address, which is looked up here; `socks4a` and `socks5h` get the name, and look it up
themselves.  The library is imported when it is first needed.
"""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from spyweb.errors import FetchError
from spyweb.ops.network.address_check import SOCKS_PORT, AddressCheck, is_literal
from spyweb.ops.network.connector import Connector
from spyweb.ops.network.resolver import Resolver

BY_ADDRESS = ("socks4", "socks5")  # they get an address
BY_NAME = ("socks4a", "socks5h")  # they get a name


class Untouched(AbstractResolver):
    """Leaves names as they are: the proxy looks them up."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host=host, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None: ...


def open_connector(proxy: URL, resolver: Resolver, check: AddressCheck) -> Connector:
    """Make a connector whose connections go through one proxy."""
    return Connector(
        dial=SocksProxy(proxy, resolver, check).connect,
        resolver=resolver if proxy.scheme in BY_ADDRESS else Untouched(),
        family=socket.AF_INET if proxy.scheme == "socks4" else socket.AF_UNSPEC,  # it supports no other
        use_dns_cache=False,
        force_close=True,
    )


class SocksProxy:
    """A SOCKS proxy.  Its failures are FetchErrors of the kind `proxy`."""

    def __init__(self, proxy: URL, resolver: Resolver, check: AddressCheck) -> None:
        self._proxy = proxy
        self._names = resolver
        self._check = check

    async def connect(self, host: str, port: int) -> socket.socket:
        """Return a socket that is connected to the host.  Raises FetchError."""
        from python_socks import ProxyError, ProxyType
        from python_socks.async_.asyncio import Proxy

        if self._proxy.scheme in BY_ADDRESS:
            self._check.check_behind_proxy(host, port, [host])
        proxy = Proxy(
            ProxyType.SOCKS4 if self._proxy.scheme.startswith("socks4") else ProxyType.SOCKS5,
            await self._address(),
            self._proxy.port or SOCKS_PORT,
            username=self._proxy.user,
            password=self._proxy.password or "",
            rdns=self._proxy.scheme in BY_NAME,
        )
        try:
            return await proxy.connect(host, port)
        except (ProxyError, OSError, ValueError, AssertionError) as error:
            raise FetchError("proxy", f"the proxy could not connect to {host}:{port}: {error}") from error

    async def _address(self) -> str:
        """Return the address of the proxy itself.  Raises FetchError."""
        host = self._proxy.raw_host or ""
        try:
            found = [host] if is_literal(host) else [each["host"] for each in await self._names.resolve(host)]
        except OSError as error:
            raise FetchError("proxy", f"could not resolve {host}: {error}") from error
        try:
            self._check.check(found[0], self._proxy.port or SOCKS_PORT)
        except OSError as error:
            raise FetchError("proxy", f"could not connect to the proxy {host}: {error}") from error
        return found[0]
