"""Streamed answers: Server-Sent Events, and one JSON object a line; some last as long as the client listens.

Each has a buffer, so their number is limited; all end when the server closes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct, field

from spyweb.errors import SpywebError
from spyweb.events.changes import PageFollower
from spyweb.events.hub import Follower
from spyweb.store.interchange.lines import END
from spyweb.views.jobs import to_json
from spyweb.web.access.forward import VOUCHER
from spyweb.web.access.headers import is_loopback
from spyweb.web.access.principal import key_of
from spyweb.web.answer import describe
from spyweb.web.connections import address_of

log = structlog.get_logger()

QUIET_S = 15.0  # after which a client gets a sign of life
STALLED_S = 30.0  # without reading, after which a client is disconnected
PAUSE_S = 0.2  # between two sends: events of that time are sent together
HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # has nginx pass on each event at once
}
KERNEL_BYTES = 64 * 1024  # that the kernel may keep for one stream; it takes twice that for what is around them
NDJSON = {"Content-Type": "application/x-ndjson"}
FLUSH = 1 << 16  # bytes of lines sent at a time
UNREAD_S = 300.0  # in which a client reads nothing, as with a terminal that is stopped


class OpenStream(Struct, frozen=True, eq=False):
    request: web.Request
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class StreamCounter:
    """The open streams of one kind.

    Their number is limited per address, except for this machine, where a reverse proxy serves many clients.  One key
    may have a quarter of all.
    """

    def __init__(self, most: int, of_one_address: int = 0) -> None:
        self._most = most
        self._of_one_address = of_one_address
        self._open: list[OpenStream] = []

    @contextmanager
    def one(self, request: web.Request) -> Iterator[OpenStream]:
        """Count a stream while it is open.  Raises HTTPServiceUnavailable at the limit."""
        self._check(request)
        stream = OpenStream(request)
        self._open.append(stream)
        try:
            yield stream
        finally:
            self._open.remove(stream)

    def _check(self, request: web.Request) -> None:
        """Refuse a stream beyond the limits.  A stream whose client has disconnected does not count."""
        others = [each.request for each in self._open if each.request.transport is not None]
        address, of_address = _address(request), self._of_one_address
        key, of_key = key_of(request), self._most // 4
        if len(others) >= self._most:
            many = f"{self._most} streams"
        elif address and of_address and sum(_address(each) == address for each in others) >= of_address:
            many = f"{of_address} streams of this address"
        elif key and sum(key_of(each) == key for each in others) >= of_key:
            many = f"{of_key} streams of this key"
        else:
            return
        text = f"{many} are open already: end one of them"
        raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "10"})

    async def end_all(self, _: web.Application) -> None:
        """End every stream: a server that closes waits for its answers."""
        for each in self._open:
            each.over.set()
            each.woken.set()


EVENT_STREAMS = web.AppKey("streams of events", StreamCounter)
PAGE_STREAMS = web.AppKey("streams of pages", StreamCounter)
OPEN_STREAMS = web.AppKey("answers that go on", StreamCounter)

StreamSource = Follower | PageFollower  # gives a stream what to send
Follow = Callable[[Callable[[], None]], Awaitable[StreamSource]]  # takes a function that wakes the stream


async def send_events(request: web.Request, streams: StreamCounter, follow: Follow) -> web.StreamResponse:
    """Send events until the server closes or the client disconnects; a client that does not read is disconnected."""
    response = web.StreamResponse(headers=HEADERS)
    if request.method == "HEAD":
        return response
    with streams.one(request) as stream:
        followed = await follow(stream.woken.set)
        try:
            connection: socket.socket | None = request.get_extra_info("socket")
            if connection is not None:  # a large buffer of the kernel would hold outdated events
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
            await response.prepare(request)
            await _send_all(response, stream, followed)
        except (TimeoutError, ConnectionError):
            _hang_up(request)
        finally:
            followed.leave()
    return response


async def _send_all(response: web.StreamResponse, stream: OpenStream, followed: StreamSource) -> None:
    is_quiet = False
    while not stream.over.is_set() and stream.request.transport is not None:
        stream.woken.clear()
        data = followed.take()
        if not data and is_quiet:
            data = b"id: %s\n\n" % followed.mark.encode()  # no event, only the current mark
        if data:
            async with asyncio.timeout(STALLED_S):
                await response.write(data)
            if not followed.has_more:
                await _wait(stream.over, PAUSE_S)
        is_quiet = not (data or await _wait(stream.woken, QUIET_S))


async def _wait(what: asyncio.Event, seconds: float) -> bool:
    """Wait for an event at most this long; return whether it was set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await what.wait()
    return False


async def stream(
    request: web.Request,
    pieces: AsyncGenerator[bytes, None],
    about_errors: Mapping[str, str] | None = None,
    unread_s: float | None = None,
    headers: Mapping[str, str] = NDJSON,
) -> web.StreamResponse:
    """Send each piece, of whole lines, as it comes; a first piece is sent even when it is empty.

    A client that reads nothing for `unread_s` seconds is disconnected: unread pieces wait in memory.

    An error before the first piece is a plain answer.  After it the status line was sent, so the error is a further
    line; an answer of another type than lines of JSON breaks off, and its missing end shows that it is incomplete.
    """
    with request.app[OPEN_STREAMS].one(request):
        async with aclosing(pieces):
            first = await anext(pieces)
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            try:
                await response.write(first)
                async for piece in pieces:
                    async with asyncio.timeout(unread_s):
                        await response.write(piece)
            except TimeoutError:
                response.force_close()
                _hang_up(request)
                return response
            except SpywebError as error:
                if headers is not NDJSON:
                    log.warning("an answer breaks off", path=request.path, reason=str(error))
                    _hang_up(request)
                    return response
                line = {**(about_errors or {}), **msgspec.structs.asdict(describe(error))}
                await response.write(to_json(line) + b"\n")
        await response.write_eof()
        return response


async def counted(lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield many lines at a time, and at the end their number, by which a client notices an answer that was cut off."""
    count, size, gathered = 0, 0, list[bytes]()
    async with aclosing(lines):
        async for line in lines:
            count += 1
            size += len(line)
            gathered.append(line)
            if size >= FLUSH:
                yield b"".join(gathered)
                gathered.clear()
                size = 0
    gathered.append(b"%s%d}\n" % (END, count))
    yield b"".join(gathered)


def _hang_up(request: web.Request) -> None:
    if request.transport:
        request.transport.abort()


def _address(request: web.Request) -> object:
    """Return the address by which a client is counted; None for the socket, this machine, and other nodes' clients."""
    peer = None if request.get(VOUCHER) else request.get_extra_info("peername")
    if not isinstance(peer, tuple) or is_loopback(str(peer[0]).removeprefix("::ffff:")):
        return None
    return address_of(peer)
