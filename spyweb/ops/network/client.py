"""The HTTP client: a shared aiohttp session, with limits that keep another machine from hurting this one.

The body is counted after decompression, while it streams; one timeout covers all of a request; there are no cookies, no
netrc, no proxies from the environment.  Each connection is checked by the address that it leads to, so that neither a
redirect nor a name whose address changes can reach a host that the job, or `deny_private`, forbids.
"""

from __future__ import annotations

import asyncio
import io
import os
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial

import aiohttp
from msgspec import Struct
from yarl import URL

from spyweb import descriptors
from spyweb.clock import Clock
from spyweb.errors import FetchError, NotPermitted
from spyweb.limits import HEADER_BLOCK, HEADERS
from spyweb.model import MIB
from spyweb.ops.network.address_check import SOCKS_PORT, UNDER_WAY, AddressCheck, OwnSockets
from spyweb.ops.network.certificate import machine_trust
from spyweb.ops.network.connector import REFUSED, Connector, HttpResponse, in_one_line, open_connector
from spyweb.ops.network.decoding import STEP, Decoder
from spyweb.ops.network.probing import Prober
from spyweb.ops.network.request import MOST_REDIRECTS, SOCKS_SCHEMES, Fetch, Response, without_password
from spyweb.ops.network.resolver import Lookup, Resolver, ask_system
from spyweb.settings.sections import HttpSettings

MOST_CONNECTIONS = 4096
MOST_CONNECTIONS_PER_HOST = 128  # so that one slow host leaves room for the others
MOST_THROUGH_SOCKS = 256  # requests at once
PIECE = 16_384  # bytes of a body: as it came
SMALL_PRINT = 65_536  # bytes by which a compressed body may be longer than its content
AT_HAND_S = 1.0  # how long a body that need not be complete may take
LARGE_BODY = MIB  # bytes; aiohttp writes a file in pieces, bytes at once
ABOUT_THE_BODY = ("Content-Type", "Content-Encoding", "Content-Language", "Content-Location")
LONGEST_SHOWN = 200  # of an address, which the other side chose
NO_HTTP = "Bad status line"  # how aiohttp's message begins; no type tells it
REPEATABLE = ("GET", "HEAD")
FRESH = ("connection", "close")  # a header: its request takes a connection that nobody has used, and that is not kept


class HttpClient:
    """Implements Http over the network.  Made by `open_client`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        resolver: Resolver,
        own: OwnSockets,
        settings: HttpSettings,
        clock: Clock,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.settings = settings
        self._session = session
        self._resolver = resolver
        self._clock = clock
        self._socks_room = asyncio.Semaphore(MOST_THROUGH_SOCKS)
        self._check = partial(AddressCheck, own=own, deny_private=settings.deny_private)
        self.probe = Prober(resolver, clock, self._check, tls).probe
        self._tls = tls  # which certificates to trust; None: those that this machine trusts

    async def fetch(self, fetch: Fetch) -> Response:
        """Send a request and read the response.  Raises FetchError."""
        began = self._clock.monotonic()
        is_fresh = any((name.lower(), value.lower()) == FRESH for name, value in fetch.headers.items())
        check = self._check(gate=fetch.gate, is_fresh=is_fresh)
        proxy = fetch.proxy
        try:
            async with asyncio.timeout(fetch.timeout_s) as limit:
                if proxy is None or proxy.scheme not in SOCKS_SCHEMES:
                    response, body = await self._exchange(self._session, proxy, fetch, check, limit)
                else:
                    connector = open_connector(proxy, self._resolver, check)  # so that nothing of it is kept
                    async with self._socks_room, make_session(connector, self.settings) as session:
                        response, body = await self._exchange(session, None, fetch, check, limit)
        except FetchError as error:
            error.proxy = error.proxy or _proxy_of(fetch)
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise failure_of(error, fetch) from error
        return Response(
            status=response.status,
            body=body,
            headers=joined_headers(response.raw_headers),
            url=str(response.url).encode(),
            time_ms=round((self._clock.monotonic() - began) * 1000),
            ip=check.reached.encode(),
            redirects=len(response.history),
        )

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        proxy: URL | None,
        fetch: Fetch,
        check: AddressCheck,
        limit: asyncio.Timeout,
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send a request in a session, and read the body of its response."""
        if self._tls is None:  # even for plain HTTP: a redirect may lead to TLS
            self._tls = await asyncio.to_thread(machine_trust, "http/1.1")
        data = fetch.body
        async with session.request(
            fetch.method,
            fetch.url,
            headers=fetch.headers,
            data=io.BytesIO(data) if data is not None and len(data) >= LARGE_BODY else data,
            proxy=proxy,
            ssl=self._tls,
            middlewares=(Hops(fetch, check, self._resolver).send,),
            allow_redirects=fetch.follow,
            max_redirects=MOST_REDIRECTS + 1,  # aiohttp gives up at this one, before following it
        ) as response:
            if fetch.whole:
                return response, await _read_body(response, fetch, self._clock)
            limit.reschedule(None)
            return response, await _read_at_hand(response, fetch, self._clock)


async def _read_body(response: aiohttp.ClientResponse, fetch: Fetch, clock: Clock) -> bytes:
    announced = response.content_length or 0
    if announced > fetch.largest and response.method != "HEAD":
        raise _too_large(fetch)
    body = bytearray()
    try:
        async for step in _decoded(response, fetch, clock):
            body += step
            if len(body) > fetch.largest:
                raise _too_large(fetch)
            if len(step) >= STEP:
                await clock.sleep(0)  # a piece may become gigabytes, and other tasks need their turn
    except aiohttp.ClientPayloadError as error:
        cut = f"after {response.content.total_bytes} of {response.content_length} bytes"
        where = "before the end of the body" if response.content_length is None else cut
        raise FetchError("http", f"the server closed {where}") from error
    return bytes(body)


async def _read_at_hand(response: aiohttp.ClientResponse, fetch: Fetch, clock: Clock) -> bytes:
    """Return the beginning of the body, even if the rest is invalid."""
    body = bytearray()
    with suppress(FetchError, aiohttp.ClientError, OSError, ValueError):
        async with asyncio.timeout(AT_HAND_S):
            async for step in _decoded(response, fetch, clock):
                body += step
                if len(body) >= fetch.largest:
                    break
    return bytes(body[: fetch.largest])


async def _decoded(response: aiohttp.ClientResponse, fetch: Fetch, clock: Clock) -> AsyncIterator[bytes]:
    """Yield the decoded body, step by step.  Raises FetchError."""
    decoder = Decoder(response.headers.getall("Content-Encoding", ()))
    read, next_turn = 0, PIECE
    async for piece in response.content.iter_chunked(PIECE):
        read += len(piece)
        if read > fetch.largest + SMALL_PRINT:  # it may decompress to nothing, and never end
            raise _too_large(fetch)
        for step in decoder.decode(piece):
            yield step
        if read >= next_turn:  # in very small chunks or streams, even little data takes time
            next_turn = read + PIECE
            await clock.sleep(0)
    decoder.finish()


def _too_large(fetch: Fetch) -> FetchError:
    return FetchError("size", f"the response is larger than {fetch.largest / MIB:g} MB")


def joined_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers with names in lower case, the values of repeated ones joined."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in raw:
        values.setdefault(name.lower(), []).append(value)
    return {name: b", ".join(several) for name, several in values.items()}


class Hops(Struct, frozen=True):
    """The middleware for each hop of a request, the first one and those of redirects."""

    fetch: Fetch
    checked: AddressCheck
    resolver: Resolver

    async def send(self, wanted: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Check the host of a hop, and the addresses that it leads to, and send the hop's request."""
        UNDER_WAY.set(self.checked)
        try:
            await self._begin(wanted.url.raw_host or "", wanted.url.port or 0)
            if wanted.method != self.fetch.method:  # a redirect has made it a GET
                for name in ABOUT_THE_BODY:
                    wanted.headers.popall(name, None)
            if wanted.url.raw_host != self.fetch.url.raw_host:  # a Host header of the script belongs to the first host
                wanted.headers["Host"] = wanted.url.host_port_subcomponent or ""
            try:
                return await send(wanted)
            except aiohttp.ServerDisconnectedError:
                # It used the connection of the hop before, which the server may just have closed.  aiohttp also tries
                # once more, but only once over all hops.
                if wanted.url == self.fetch.url or wanted.method not in REPEATABLE:
                    raise
                return await send(wanted)
        except (OSError, FetchError) as error:
            refused = self.checked.refusal or error
            if isinstance(refused, NotPermitted):
                refused.is_redirect = wanted.url != self.fetch.url
                raise refused from None
            raise

    async def _begin(self, host: str, port: int) -> None:
        proxy, check, addresses = self.fetch.proxy, self.checked, list[str]()
        if check.gate is not None:
            check.gate.check(host, port, proxied=proxy is not None)
        if proxy is None:
            check.begin_hop(host, port)
            return
        check.begin_hop(proxy.raw_host or "", proxy.port or SOCKS_PORT, is_proxied=True)
        if port in check.own.ports:
            with suppress(OSError):  # this machine knows no address of it
                addresses = await self.resolver.addresses(host)
        check.check_behind_proxy(host, port, addresses)


def make_session(connector: aiohttp.TCPConnector, settings: HttpSettings) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        response_class=HttpResponse,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": settings.user_agent},
        skip_auto_headers=("Content-Type",),
        auto_decompress=False,  # the decoder does it
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # one asyncio.timeout covers everything
        trust_env=False,
        requote_redirect_url=False,  # HttpResponse has done so
        max_line_size=HEADER_BLOCK,  # aiohttp's own 8,190 refuses the security headers of well-known sites
        max_field_size=HEADER_BLOCK,
        max_headers=HEADERS,
    )


@asynccontextmanager
async def open_client(
    settings: HttpSettings,
    clock: Clock,
    own: OwnSockets | None = None,
    *,
    lookup: Lookup = ask_system,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[HttpClient]:
    """Open the client; `own` knows the listeners of its process, where there are any.

    `lookup` and `tls` are for callers with their own names or certificates, such as tests.
    """
    own = own or OwnSockets()
    resolver = Resolver(clock, lookup)
    connector = Connector(
        limit=min(MOST_CONNECTIONS, descriptors.share(2, 1)),  # the rest is for the store, the workers and the logs
        limit_per_host=MOST_CONNECTIONS_PER_HOST,
        resolver=resolver,
        use_dns_cache=False,  # the resolver keeps answers, and failures too
    )
    try:
        async with make_session(connector, settings) as session:
            yield HttpClient(session, resolver, own, settings, clock, tls)
    finally:
        await resolver.close()


# Failures, by the `kind` of error that scripts know

# In order: the first that fits decides, since aiohttp's errors have several parents.
_KINDS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError), "proxy"),
    ((aiohttp.ClientConnectorDNSError,), "dns"),
    ((aiohttp.ClientSSLError, ssl.SSLError), "tls"),
    ((TimeoutError,), "timeout"),
    ((aiohttp.InvalidURL, aiohttp.RedirectClientError, aiohttp.NonHttpUrlClientError), "http"),
    ((aiohttp.ClientResponseError, aiohttp.ClientPayloadError), "http"),
    ((aiohttp.ClientConnectionError, OSError), "connect"),
    ((aiohttp.ClientError,), "unknown"),
    ((ValueError,), "http"),  # aiohttp's word for a request that it would not send
)


def failure_of(error: Exception, fetch: Fetch) -> FetchError:
    kind = next(kind for types, kind in _KINDS if isinstance(error, types))
    if kind == "dns" and fetch.proxy is not None:
        kind = "proxy"  # with a proxy, its name is the only one that is looked up here
    return FetchError(kind, _text_of(error, kind, fetch), url=without_password(fetch.url), proxy=_proxy_of(fetch))


def _proxy_of(fetch: Fetch) -> str | None:
    return None if fetch.proxy is None else without_password(fetch.proxy)


def _text_of(error: Exception, kind: str, fetch: Fetch) -> str:
    match error:
        case TimeoutError() if kind == "timeout":
            return f"no complete response within {fetch.timeout_s:g} s"
        case aiohttp.ClientConnectorDNSError():
            return f"could not resolve {error.host}: {_reason(error.os_error)}"
        case aiohttp.ClientSSLError():
            return f"TLS with {error.host} failed: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"could not connect to {error.host}:{error.port}: {_reason(error.os_error)}"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return f"bad URL: {str(error).removeprefix(REFUSED)[:LONGEST_SHOWN]}"
        case aiohttp.ClientResponseError():
            return _text_of_answer(error)
        case aiohttp.ServerDisconnectedError():
            return "the server closed without a whole answer"  # aiohttp shows what it has of the head
        case _:
            return str(error) or type(error).__name__


def _text_of_answer(error: aiohttp.ClientResponseError) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {error.status} {in_one_line(error.message)}"
    if isinstance(error, aiohttp.TooManyRedirects):
        last = f", the last at {without_password(error.history[-1].url)[:LONGEST_SHOWN]}" if error.history else ""
        return f"too many redirects: more than {MOST_REDIRECTS}{last}"
    if error.message.startswith(NO_HTTP):
        return "the answer is not HTTP"
    return in_one_line(error.message)


def _reason(error: OSError) -> str:
    if error.errno and (error.strerror or "").startswith("Connect call failed"):  # asyncio repeats the address there
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
