"""Make connections as aiohttp does, but with limits on what is read, and through a SOCKS proxy if there is one.

Only this module uses parts of aiohttp that are not documented; its version is pinned.  There is no other way to limit
what a server may send before a body can be read, to notice a closed tunnel, or to connect by other means.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import AddrInfoType, Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from spyweb import descriptors
from spyweb.errors import FetchError
from spyweb.limits import FRAMING, HEADER_BLOCK, INTERIM_ANSWERS, LOCATION, too_large, too_many_chunks
from spyweb.ops.network.address_check import SOCKS_PORT, UNDER_WAY, AddressCheck
from spyweb.ops.network.request import NO_URL, as_written, check_authority, read_url
from spyweb.ops.network.resolver import Resolver

END_OF_HEAD = re.compile(rb"\n\r?\n")
SWITCHING = 101  # the only response 1xx that is not an interim one
SLICE = 16_384  # bytes of a body that are parsed before its chunks are counted

REFUSED = "no-url:"  # a scheme that aiohttp does not follow, without parsing the rest

_NO_UTF8 = re.compile("[\udc80-\udcff]")  # what aiohttp makes of such bytes

Dial = Callable[[str, int], Awaitable[socket.socket]]  # to a host and a port.  Raises FetchError


def in_one_line(message: str) -> str:
    """Return the first line of one of aiohttp's messages; the others show bytes of the response."""
    return (message or "bad response").splitlines()[0].rstrip(":")


class HttpResponse(aiohttp.ClientResponse):
    """A response whose Location aiohttp does not drop for bytes that are not UTF-8, nor change the escapes of."""

    @cached_property  # aiohttp reads them often
    def headers(self) -> CIMultiDictProxy[str]:  # aiohttp follows the Location in it
        headers = super().headers
        location = headers.get("Location") or headers.get("URI")
        if not location:
            return headers
        changed = CIMultiDict(headers)
        changed["Location"] = led_to(self.url, location)
        return CIMultiDictProxy(changed)


def led_to(base: URL, location: str) -> str:
    """Return the address that a redirect leads to, as browsers do: non-UTF-8 is escaped, the query stays as it is."""
    size = len(location.encode("utf-8", "surrogateescape"))
    if size > LOCATION:
        return REFUSED + too_large("a Location", size, LOCATION)
    text = _NO_UTF8.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", location)
    try:
        check_authority(text)
    except ValueError as error:
        return REFUSED + str(error)
    try:
        target = read_url(text)
        if target.scheme and not target.raw_host:
            return text
        return str(as_written(base.join(target), text))
    except NO_URL:
        return REFUSED + text


def open_socket(info: AddrInfoType) -> socket.socket:
    """Return a socket for this address, if the request under way may connect to it.  Raises OSError."""
    family, kind, protocol, _, address = info
    check = UNDER_WAY.get()
    check.check(str(address[0]), int(address[1]))
    if descriptors.left() < descriptors.RESERVE:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    opened = socket.socket(family, kind, protocol)
    if kind == socket.SOCK_STREAM:
        check.own.opened.add(opened)
    return opened


class Connector(aiohttp.TCPConnector):
    """Makes connections whose responses are read by an Incoming; `dial`, if given, makes their sockets."""

    def __init__(self, *, dial: Dial | None = None, **options: Any) -> None:
        super().__init__(socket_factory=open_socket, **options)
        reader: type[ResponseHandler] = Incoming
        self._factory = partial(reader, loop=asyncio.get_running_loop())
        self._dial = dial

    async def connect(self, *args: Any, **kwargs: Any) -> Connection:
        """Return a connection, a new or a kept one.  Raises OSError where the request may not use it."""
        connection = await super().connect(*args, **kwargs)
        try:
            peer = connection.transport and connection.transport.get_extra_info("peername")
            if not peer:
                raise aiohttp.ServerDisconnectedError
            check = UNDER_WAY.get()
            check.check(str(peer[0]), int(peer[1]))
            check.reached = str(peer[0])
        except BaseException:
            connection.close()
            raise
        return connection

    async def _get(self, *args: Any, **kwargs: Any) -> Connection | None:
        """Return a kept connection; None for a request that asks for a new one."""
        return None if UNDER_WAY.get().is_fresh else await super()._get(*args, **kwargs)

    async def _wrap_create_connection(
        self, *args: Any, addr_infos: list[AddrInfoType], **kwargs: Any
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        if self._dial is None:
            return await super()._wrap_create_connection(*args, addr_infos=addr_infos, **kwargs)
        address = addr_infos[0][4]
        connected = await self._dial(str(address[0]), int(address[1]))
        try:
            return await self._wrap_existing_connection(*args, sock=connected, **kwargs)
        except BaseException:
            connected.close()
            raise

    async def _start_tls_connection(  # aiohttp does not check before it whether the tunnel is still open
        self, underlying_transport: asyncio.Transport, *args: Any, **kwargs: Any
    ) -> tuple[asyncio.BaseTransport, ResponseHandler]:
        if underlying_transport.is_closing():
            raise FetchError("proxy", "the proxy closed its tunnel before it was used")
        return await super()._start_tls_connection(underlying_transport, *args, **kwargs)


class Incoming(ResponseHandler):
    """Reads what a server sends, with limits on heads, interim responses, and chunks.

    A head is parsed before the bytes that came with it.  Otherwise bytes after the end of a response, such as the body
    of a 204, or more than the Content-Length, would make aiohttp refuse all of it, the status too.  As it is, they only
    close the connection.
    """

    _is_asked = False

    def set_response_params(self, **params: Any) -> None:
        """Begin to wait for the response to a request."""
        self._is_asked = True
        self._is_answered = False
        self._head = 0  # bytes of the current head
        self._end = b""  # the last of them: the blank line may be split between two pieces
        self._interim = 0
        self._taken = 0  # bytes of the body, with those between its chunks
        self._chunks = 0
        self._body: StreamReader | None = None
        super().set_response_params(**params)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Queue the response; interim responses are only counted, since nobody waits for them."""
        if 100 <= data[0].code < 200 and data[0].code != SWITCHING:
            return
        if self._is_answered:
            self._close()
            return
        self._is_answered = True
        self._body = data[1]
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        if not self._is_asked or self.upgraded:  # no request was sent yet, or the protocol is no longer HTTP
            super().data_received(data)
            return
        if not data:
            self._parse(data)  # what the parser has kept back
        while data and not self.upgraded and self.exception() is None:
            data = self._take_body(data) if self._is_answered else self._take_head(data)
        error, body = self.exception(), self._body
        if isinstance(error, HttpProcessingError) and body is not None and not body.is_eof():
            # aiohttp would let the reader of the body wait for the rest
            body.set_exception(FetchError("http", in_one_line(error.message)))

    def _take_head(self, data: bytes) -> bytes:
        """Parse the bytes of one head; return the rest."""
        found = END_OF_HEAD.search(self._end + data)
        size = found.end() - len(self._end) if found else len(data)
        self._head += size
        if self._head > HEADER_BLOCK:
            self._refuse(f"the head of the answer has more than {HEADER_BLOCK} bytes")
            return b""
        self._end = b"" if found else (self._end + data)[-3:]
        self._parse(data[:size])
        if found and not self._is_answered:
            self._head = 0
            self._interim += 1  # a blank line without a head, too
            if self._interim > INTERIM_ANSWERS:
                self._refuse(f"more than {INTERIM_ANSWERS} interim answers before the answer")
        return data[size:]

    def _take_body(self, data: bytes) -> bytes:
        """Parse some of the body; return the rest."""
        if self._body is None or self._body.is_eof():
            self._close()
            return b""
        self._taken += len(data[:SLICE])
        self._parse(data[:SLICE])
        return data[SLICE:]

    def _parse(self, data: bytes) -> None:
        before = _chunks_unread(self._body)
        super().data_received(data)
        body = self._body
        self._chunks += max(0, _chunks_unread(body) - before)
        if body is None or body.is_eof():
            return
        if too_many_chunks(self._chunks, body.total_bytes):
            self._refuse(f"the body has too many chunks: {self._chunks} for {body.total_bytes} bytes")
        if self._taken > FRAMING + 2 * body.total_bytes:
            self._refuse(f"the body has {self._taken - body.total_bytes} bytes beside its content")

    def _refuse(self, reason: str) -> None:
        if self.exception() is None:
            self.set_exception(HttpProcessingError(message=reason))
        self._close()

    def _close(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()


def _chunks_unread(body: StreamReader | None) -> int:
    """Count the chunks that have come and have not been read."""
    return len(getattr(body, "_http_chunk_splits", None) or ())


# Proxies that get addresses, resolved here, and proxies that resolve names themselves

BY_ADDRESS, BY_NAME = ("socks4", "socks5"), ("socks4a", "socks5h")


class Untouched(AbstractResolver):
    """Leaves names as they are: the proxy resolves them."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host=host, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None: ...


def open_connector(proxy: URL, resolver: Resolver, check: AddressCheck) -> Connector:
    """Make a connector whose connections go through one SOCKS proxy; its failures are of the kind `proxy`."""
    host, port = proxy.raw_host or "", proxy.port or SOCKS_PORT

    async def find_proxy() -> str:
        try:
            address = (await resolver.addresses(host))[0]
        except OSError as error:
            raise FetchError("proxy", f"could not resolve {host}: {error}") from error
        try:
            check.check(address, port)
        except OSError as error:
            raise FetchError("proxy", f"could not connect to the proxy {host}: {error}") from error
        return address

    async def dial(target: str, target_port: int) -> socket.socket:
        from python_socks import ProxyError, ProxyType
        from python_socks.async_.asyncio import Proxy

        if proxy.scheme in BY_ADDRESS:
            check.check_behind_proxy(target, target_port, [target])
        tunnel = Proxy(
            ProxyType.SOCKS4 if proxy.scheme.startswith("socks4") else ProxyType.SOCKS5,
            await find_proxy(),
            port,
            username=proxy.user,
            password=proxy.password or "",
            rdns=proxy.scheme in BY_NAME,
        )
        try:
            return await tunnel.connect(target, target_port)
        except (ProxyError, OSError, ValueError, AssertionError) as error:
            raise FetchError("proxy", f"the proxy could not connect to {target}:{target_port}: {error}") from error

    return Connector(
        dial=dial,
        resolver=resolver if proxy.scheme in BY_ADDRESS else Untouched(),
        family=socket.AF_INET if proxy.scheme == "socks4" else socket.AF_UNSPEC,  # it supports no other
        use_dns_cache=False,
        force_close=True,
    )
