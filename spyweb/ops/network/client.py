"""The HTTP client: a shared aiohttp session, with limits that keep another machine from hurting this one.

The body is counted after decompression, while it streams; one timeout covers all of a request; there are no cookies, no
netrc, no proxies from the environment.  With `deny_private` each socket is checked by the address that it is about to
connect to, so that neither a redirect nor a name whose address changes can lead to a private network.
"""

from __future__ import annotations

import asyncio
import io
import resource
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache

import aiohttp
from aiohttp.connector import AddrInfoType
from yarl import URL

from spyweb.clock import Clock
from spyweb.errors import FetchError, NotPermitted
from spyweb.limits import HEADER_BLOCK, HEADERS
from spyweb.model import MIB
from spyweb.ops.network.addresses import is_public, private_reason, private_target
from spyweb.ops.network.answer import HttpResponse
from spyweb.ops.network.certificate import Prober
from spyweb.ops.network.connector import Connector
from spyweb.ops.network.decoding import STEP, Decoder
from spyweb.ops.network.failures import translated
from spyweb.ops.network.gate import AddressRefused, NetGate, Rules
from spyweb.ops.network.request import MOST_REDIRECTS, SOCKS_SCHEMES, Fetch, Response
from spyweb.ops.network.resolver import Lookup, Resolver, RuledResolver, ask_system
from spyweb.ops.network.socks import open_connector
from spyweb.settings import HttpSettings

MOST_CONNECTIONS = 4096
MOST_CONNECTIONS_PER_HOST = 128  # so that one slow host leaves room for the others
MOST_RULED_SESSIONS = 32
MOST_THROUGH_SOCKS = 256  # requests at once
PIECE = 16_384  # bytes of a body: as it came
SMALL_PRINT = 65_536  # bytes by which a compressed body may be longer than its content
AT_HAND_S = 1.0  # how long a body that need not be complete may take
LARGE_BODY = MIB  # bytes; aiohttp writes a file in pieces, bytes at once
OWN_MODULUS = "kx-dhe"  # as OpenSSL names the key exchange
ABOUT_THE_BODY = ("Content-Type", "Content-Encoding", "Content-Language", "Content-Location")
REPEATABLE = ("GET", "HEAD")

Hop = aiohttp.ClientMiddlewareType
OpenSocksSession = Callable[[URL, NetGate | None], AbstractAsyncContextManager[aiohttp.ClientSession]]


@dataclass(slots=True, kw_only=True, eq=False)
class HttpClient:
    """Implements Http over the network.  Made by `open_client`."""

    session: aiohttp.ClientSession
    ruled: RuledSessions
    settings: HttpSettings
    clock: Clock
    open_socks_session: OpenSocksSession
    prober: Prober
    tls: ssl.SSLContext | None  # which certificates to trust; None: those that this machine trusts

    async def fetch(self, fetch: Fetch) -> Response:
        """Send a request and read the response.  Raises FetchError."""
        began = self.clock.monotonic()
        with translated(fetch):
            async with asyncio.timeout(fetch.timeout_s) as limit, self._answered(fetch) as response:
                if fetch.whole:
                    body = await _read_body(response, fetch, self.clock)
                else:
                    limit.reschedule(None)
                    body = await _read_at_hand(response, fetch, self.clock)
        return Response(
            status=response.status,
            body=body,
            headers=joined_headers(response.raw_headers),
            url=str(response.url),
            time_ms=round((self.clock.monotonic() - began) * 1000),
        )

    async def certificate(self, host: str, port: int, gate: NetGate | None = None) -> bytes:
        """Return the certificate of a TLS server in DER, trusted or not.  Raises FetchError."""
        timeout_s = self.settings.timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                return await self.prober.certificate(host, port, gate)
        except TimeoutError:
            raise FetchError("timeout", f"no certificate of {host}:{port} within {timeout_s:g} s") from None

    @asynccontextmanager
    async def _answered(self, fetch: Fetch) -> AsyncIterator[aiohttp.ClientResponse]:
        tls = await self._trust()
        hops = hops_of(fetch, self.settings)
        rules = fetch.gate.rules if fetch.gate is not None else ()
        if fetch.proxy is None or fetch.proxy.scheme not in SOCKS_SCHEMES:
            async with (
                self.ruled.session(rules) if rules else nullcontext(self.session) as session,
                request(session, fetch, fetch.proxy, tls, hops) as response,
            ):
                yield response
        else:
            async with (
                self.open_socks_session(fetch.proxy, fetch.gate) as session,
                request(session, fetch, None, tls, hops) as response,
            ):
                yield response

    async def _trust(self) -> ssl.SSLContext:
        """Return the TLS context, even for plain HTTP: a redirect may lead to TLS."""
        if self.tls is None:
            self.tls = await asyncio.to_thread(machine_trust)
        return self.tls


@cache
def machine_trust() -> ssl.SSLContext:
    """Return the TLS context that aiohttp would make, without reading the certificates twice when it is imported.

    It excludes key exchanges with numbers of the server's choice: very long ones would block the loop, on which the
    handshake is done.
    """
    context = ssl.create_default_context()
    context.set_ciphers(":".join(each["name"] for each in context.get_ciphers() if each["kea"] != OWN_MODULUS))
    context.set_alpn_protocols(["http/1.1"])
    return context


def request(
    session: aiohttp.ClientSession, fetch: Fetch, proxy: URL | None, tls: ssl.SSLContext, hops: Sequence[Hop]
) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    large = fetch.body is not None and len(fetch.body) >= LARGE_BODY
    return session.request(
        fetch.method,
        fetch.url,
        headers=fetch.headers,
        data=io.BytesIO(fetch.body or b"") if large else fetch.body,
        proxy=proxy,
        ssl=tls,
        middlewares=hops,
        allow_redirects=fetch.follow,
        max_redirects=MOST_REDIRECTS + 1,  # aiohttp gives up at this one, before following it
    )


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
        raise FetchError("http", _cut_off(response)) from error
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


def _cut_off(response: aiohttp.ClientResponse) -> str:
    if response.content_length is None:
        return "the server closed before the end of the body"
    return f"the server closed after {response.content.total_bytes} of {response.content_length} bytes"


def _too_large(fetch: Fetch) -> FetchError:
    return FetchError("size", f"the response is larger than {fetch.largest / MIB:g} MB")


def joined_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers with names in lower case, the values of repeated ones joined."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in raw:
        values.setdefault(name.lower(), []).append(value)
    return {name: b", ".join(several) for name, several in values.items()}


def refuse_private(info: AddrInfoType) -> socket.socket:
    """Return a socket for this address, if it may be connected to."""
    family, kind, protocol, _, address = info
    if not is_public(str(address[0])):
        raise OSError(private_reason(str(address[0])))
    return socket.socket(family, kind, protocol)


def most_connections() -> int:
    """Return half of the files that this process may open: the rest is for the store, the workers and the logs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(soft // 2, MOST_CONNECTIONS)


def hops_of(fetch: Fetch, settings: HttpSettings) -> Sequence[Hop]:
    """Return the middleware for each hop, the first one and those of redirects."""

    async def leave_behind(wanted: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if wanted.method != fetch.method:  # a redirect has made it a GET
            for name in ABOUT_THE_BODY:
                wanted.headers.popall(name, None)
        if wanted.url.raw_host != fetch.url.raw_host:  # a Host header of the script belongs to the first host
            wanted.headers["Host"] = wanted.url.host_port_subcomponent or ""
        return await send(wanted)

    async def ask_again(wanted: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send a request again that used the connection of the hop before, which the server may just have closed.

        aiohttp also tries once more, but only once over all hops.
        """
        try:
            return await send(wanted)
        except aiohttp.ServerDisconnectedError:
            if wanted.url == fetch.url or wanted.method not in REPEATABLE:
                raise
            return await send(wanted)

    asked = () if fetch.gate is None else (asks_policy(fetch, fetch.gate),)
    return (*asked, leave_behind, ask_again, *([refuse_private_names] if settings.deny_private else []))


def asks_policy(fetch: Fetch, gate: NetGate) -> Hop:
    """Return the middleware that asks the policy of the job about each host, whoever has named it."""

    async def check(wanted: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        try:
            gate.check(wanted.url.raw_host or "", wanted.url.port or 0, proxied=fetch.proxy is not None)
            return await send(wanted)
        except (AddressRefused, NotPermitted) as error:
            refused = gate.explained(error) if isinstance(error, AddressRefused) else error
            refused.is_redirect = wanted.url != fetch.url
            raise refused from None

    return check


async def refuse_private_names(
    wanted: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Refuse names given to a proxy that are known here to be private."""
    if wanted.proxy is not None and (reason := private_target(wanted.url.raw_host or "")):
        raise FetchError("connect", f"could not connect to {wanted.url.raw_host}: {reason}")
    return await send(wanted)


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


def socks_sessions(settings: HttpSettings, resolver: Resolver) -> OpenSocksSession:
    """Open a session through a SOCKS proxy for one request, so that nothing of it is kept."""
    limit = asyncio.Semaphore(MOST_THROUGH_SOCKS)

    @asynccontextmanager
    async def enter(proxy: URL, gate: NetGate | None) -> AsyncIterator[aiohttp.ClientSession]:
        async with limit:
            connector = open_connector(proxy, resolver, deny_private=settings.deny_private, gate=gate)
            async with make_session(connector, settings) as session:
                yield session

    return enter


class RuledSessions:
    """Sessions for policies with networks, one for each set of rules.

    A connection that is kept open was permitted by the rules of its session: it must not serve others.
    """

    def __init__(self, open_session: Callable[[Rules], aiohttp.ClientSession]) -> None:
        self._open_session = open_session
        self._kept: OrderedDict[Rules, aiohttp.ClientSession] = OrderedDict()
        self._users: Counter[Rules] = Counter()

    @asynccontextmanager
    async def session(self, rules: Rules) -> AsyncIterator[aiohttp.ClientSession]:
        session = self._kept.get(rules)
        if session is None:
            session = self._kept[rules] = self._open_session(rules)
        self._kept.move_to_end(rules)
        self._users[rules] += 1
        try:
            yield session
        finally:
            self._users[rules] -= 1
            await self._shed()

    async def _shed(self) -> None:
        """Close sessions that have not been used for longest: rules come and go with the settings."""
        idle = [rules for rules in self._kept if not self._users[rules]]
        for rules in idle[: max(0, len(self._kept) - MOST_RULED_SESSIONS)]:
            del self._users[rules]
            await self._kept.pop(rules).close()

    async def aclose(self) -> None:
        while self._kept:
            _, session = self._kept.popitem()
            await session.close()


@asynccontextmanager
async def open_client(
    settings: HttpSettings, clock: Clock, *, lookup: Lookup = ask_system, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HttpClient]:
    """Open the client; `lookup` and `tls` are for callers with their own names or certificates, such as tests."""
    resolver = Resolver(clock, lookup)

    def open_session(rules: Rules) -> aiohttp.ClientSession:
        connector = Connector(
            limit=most_connections(),
            limit_per_host=MOST_CONNECTIONS_PER_HOST,
            resolver=RuledResolver(resolver, rules) if rules else resolver,
            use_dns_cache=False,  # the resolver keeps answers, and failures too
            socket_factory=refuse_private if settings.deny_private else None,
        )
        return make_session(connector, settings)

    ruled = RuledSessions(open_session)
    try:
        async with open_session(()) as session, aclosing(ruled):
            yield HttpClient(
                session=session,
                ruled=ruled,
                settings=settings,
                clock=clock,
                open_socks_session=socks_sessions(settings, resolver),
                prober=Prober(resolver, deny_private=settings.deny_private),
                tls=tls,
            )
    finally:
        await resolver.close()
