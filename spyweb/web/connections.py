"""Limit the connections of the HTTP server: their number, and how long each may keep it waiting.

A connection costs a file descriptor and needs no key, so without bounds any client of the port could take the
descriptors that jobs and the private socket need.  A connection is closed when it has sent no request, is idle between
two, does not read its answer, or continues to send after it was answered.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.descriptors import allowed
from spyweb.limits import FRAMING, HEADER_BLOCK
from spyweb.model import MIB
from spyweb.views.jobs import to_json
from spyweb.web.answer import CODES, error_of

HEADER_S = 10.0  # from the connection to the end of its first request's headers
IDLE_S = 75.0  # from an answer to the end of the next request's headers
UNREAD_S = 60.0  # in which a client reads nothing of its answer
LINGER_S = 5.0  # for the rest of a request that was answered early: few clients read before they have sent all
LINGER_BYTES = 64 * MIB
LOOK_S = 5.0  # between two checks of all connections
TELL_S = 60.0  # between two log lines about the same event
PIECE = 1 << 14  # bytes that are parsed at a time
BUFFER = 1 << 15  # bytes of a body that are parsed ahead of its handler

TCP, PRIVATE = 1_024, 256  # connections
PAGING_S = 3_600.0  # in which a command that shows an export page by page may read nothing
UNSENT = 256 * MIB  # bytes of all answers that clients have not read

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
NO_HTTP = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
)
TOO_MUCH_FRAMING = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

log = structlog.get_logger()


class ConnectionLimits(Struct, frozen=True):
    total: int
    of_one_address: int
    unread_s: float = UNREAD_S


def tcp_limits() -> ConnectionLimits:
    """Give TCP a quarter of all descriptors: scripts' own requests may take half (ops/network), the rest is spare."""
    total = max(min(allowed() // 4, TCP), 8)
    return ConnectionLimits(total, total // 2)


def private_limits() -> ConnectionLimits:
    """Give the private socket an eighth: its clients are commands, which may show an export page by page."""
    total = max(min(allowed() // 8, PRIVATE), 8)
    return ConnectionLimits(total, total, unread_s=PAGING_S)


class ConnectionLimiter:
    """Counts the connections of one listener, refuses too many, and closes slow ones."""

    def __init__(self, limits: ConnectionLimits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._addresses: dict[LimitedHandler, str] = {}
        self._counts: Counter[str] = Counter()
        self._unsent: dict[LimitedHandler, int] = {}  # bytes that each had to send when its client fell behind
        self._logged: dict[str, tuple[float, int]] = {}  # what was logged, when, and how often it happened since
        self._refused_at = -math.inf
        self._is_looking = False
        self._is_closed = False

    @property
    def open(self) -> int:
        return len(self._addresses)

    @property
    def warning(self) -> str:
        """Return the reason why connections were refused within the last minute, or an empty text."""
        if self._clock.monotonic() - self._refused_at > TELL_S:
            return ""
        most = f"at most {self.limits.total} may be open, {self.limits.of_one_address} from one address"
        return f"the server refuses connections: {most}; the log has more"

    def close(self) -> None:
        """Close every connection, also one that is accepted while the listener is being closed."""
        self._is_closed = True
        for handler in list(self._addresses):
            handler.abort()

    def retire_all(self) -> None:
        """Close every connection once its current request is answered: the next ones are for another app."""
        for handler in list(self._addresses):
            handler.retire()

    def admit(self, handler: LimitedHandler, address: str) -> bool:
        if self._is_closed:
            return False
        if handler in self._addresses:  # it was counted when it was accepted, before its TLS handshake
            return True
        if self.open >= self.limits.total or self._counts[address] >= self.limits.of_one_address:
            self._refused_at = self._clock.monotonic()
            self._tell("connections are refused: too many are open", address=address, open=self.open)
            return False
        if not self._is_looking:
            self._is_looking = True
            self._clock.call_later(LOOK_S, self._look)
        self._addresses[handler] = address
        self._counts[address] += 1
        return True

    def hold_back(self, handler: LimitedHandler, unsent: int) -> None:
        """Note a client that reads too slowly, or disconnect it when all such clients hold too much memory."""
        if sum(self._unsent.values()) + unsent > UNSENT:
            self._tell("connections are closed: too many answers wait to be read", address=self._addresses.get(handler))
            handler.abort()
        else:
            self._unsent[handler] = unsent

    def go_on(self, handler: LimitedHandler) -> None:
        self._unsent.pop(handler, None)

    def release(self, handler: LimitedHandler) -> None:
        self.go_on(handler)
        address = self._addresses.pop(handler, None)
        if address is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def _look(self) -> None:
        for handler, address in list(self._addresses.items()):
            reason = handler.find_delay()
            if reason:
                self._tell(f"connections are closed: {reason}", address=address)
                handler.abort()
        self._is_looking = bool(self._addresses)
        if self._is_looking:
            self._clock.call_later(LOOK_S, self._look)

    def _tell(self, event: str, **fields: object) -> None:
        """Log an event that a client can cause at will: once a minute, with its count."""
        now = self._clock.monotonic()
        logged_at, since = self._logged.get(event, (-TELL_S, 0))
        if now - logged_at < TELL_S:
            self._logged[event] = (logged_at, since + 1)
            return
        self._logged[event] = (now, 0)
        log.warning(event, **fields, times=since + 1)


class LimitedHandler(RequestHandler):
    """Handles one connection of a client, within the limits."""

    def __init__(self, manager: web.Server, limiter: ConnectionLimiter, **options: Any) -> None:
        super().__init__(manager, keepalive_timeout=IDLE_S, lingering_time=LINGER_S, read_bufsize=BUFFER, **options)
        self._limiter = limiter
        self._head = 0  # bytes of a request whose headers have not all come
        self._content: StreamReader = EMPTY_PAYLOAD  # of the latest request
        self._has_asked = False
        self._looks_before_request = 0
        self._looks_stuck = 0
        self._unsent = 0
        self._sent = 0  # bytes of the latest request's body, with what stands between its chunks
        self._is_done = False  # further bytes are ignored
        self._surplus = 0  # bytes that came after that

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        real = cast(asyncio.Transport, transport)
        if self._force_close:  # it was retired during its handshake
            real.abort()
        elif self._limiter.admit(self, address_of(real.get_extra_info("peername"))):
            super().connection_made(transport)
        else:
            real.write(REFUSAL)
            real.close()

    def connection_lost(self, error: BaseException | None) -> None:
        self._limiter.release(self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Parse data in small pieces: an error of the parser holds what it was given, several times over.

        No data is handed on as well: it has the parser go on with what it has put aside while the reader was behind.
        What the parser makes of a piece no public attribute tells: `_messages` are the requests that wait to be
        answered, of which none is taken out meanwhile.
        """
        for start in range(0, max(1, len(data)), PIECE):
            if self._is_done:
                self._surplus += len(data) - start
                if self._surplus > LINGER_BYTES:
                    self.abort()
                return
            piece, waiting = data[start : start + PIECE], len(self._messages)
            super().data_received(piece)
            if len(self._messages) > waiting:
                message, self._content = self._messages[-1]
                self._has_asked = True
                self._head = self._sent = 0
                # Otherwise it is an error, as all that follows would be.
                self._is_done = not isinstance(message, RawRequestMessage)
            elif self._content.is_eof():
                self._head += len(piece)
                if self._head > HEADER_BLOCK + self.max_line_size:
                    self._refuse(TOO_LONG)
            else:
                self._sent += len(piece)
                if self._sent > FRAMING + 2 * self._content.total_bytes:
                    self._refuse(TOO_MUCH_FRAMING)

    def _refuse(self, answer: bytes) -> None:
        self._is_done = True
        if self.transport is not None:
            self.transport.write(answer)
            self.force_close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer bytes that are not HTTP in place of aiohttp, which would name itself."""
        answer = super().handle_error(request, status, exc, message)
        if isinstance(exc, HttpProcessingError):
            text = (message or "").encode("utf-8", "backslashreplace").decode()
            body = to_json(error_of(text, CODES[400]))
            self._refuse(NO_HTTP % len(body) + body)
        return answer

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.transport is not None:
            self._limiter.hold_back(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._limiter.go_on(self)

    async def finish_response(
        self, request: web.BaseRequest, response: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer; the rest of a body that has not arrived is not parsed."""
        if not request.content.is_eof() and not response.prepared:
            response.force_close()
        finished = await super().finish_response(request, response, start_time)
        self._is_done = self._is_done or not request.content.is_eof()
        return finished

    def find_delay(self) -> str:
        """Return why this connection is to be closed, or an empty text; asked every LOOK_S."""
        if self.transport is None:
            return ""
        unsent = self.transport.get_write_buffer_size()
        self._looks_stuck = self._looks_stuck + 1 if unsent and unsent == self._unsent else 0
        self._unsent = unsent
        self._looks_before_request = 0 if self._has_asked else self._looks_before_request + 1
        unread_s = self._limiter.limits.unread_s
        if self._looks_stuck * LOOK_S >= unread_s:
            return f"the client has read nothing for {unread_s:.0f} s"
        if self._looks_before_request * LOOK_S > HEADER_S:
            return f"no request came within {HEADER_S:.0f} s"
        return ""

    def retire(self) -> None:
        """Answer the request that is under way, if any, and no further one."""
        if self._request_in_progress:
            self.close()
        else:
            self.force_close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


def address_of(peer: Sequence[object] | str | None) -> str:
    """Return the address that a connection counts for: an IPv4 address, or the /64 of IPv6 that one customer has."""
    if not peer or isinstance(peer, str | bytes):
        return "local"
    address = ip_address(str(peer[0]).partition("%")[0])
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
