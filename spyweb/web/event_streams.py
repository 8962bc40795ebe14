"""Open streams of events, count those of an app, and end them when its server closes."""

from __future__ import annotations

import socket
from asyncio import Transport
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from aiohttp import web
from msgspec import Struct

from spyweb.web.access.hosts import is_loopback
from spyweb.web.access.principal import key_of
from spyweb.web.connections import address_of

KERNEL_BYTES = 64 * 1024  # that the kernel may keep for one stream; it takes twice that for what is around them
RETRY_AFTER_S = "10"


class TooManyStreams(web.HTTPServiceUnavailable):
    """Somebody has as many streams open as there may be."""

    def __init__(self, text: str) -> None:
        super().__init__(text=text, headers={"Retry-After": RETRY_AFTER_S})


class OpenStream(Struct, frozen=True, eq=False):
    request: web.Request
    end: Callable[[], None]


class EventStreams:
    """Counts the streams of one kind.

    One address has only so many, but for this machine: a reverse proxy there speaks for everybody.  One key has a
    quarter of all.
    """

    def __init__(self, most: int, of_one_address: int) -> None:
        self._most = most
        self._of_one_address = of_one_address
        self._open: list[OpenStream] = []

    @contextmanager
    def one(self, request: web.Request, end: Callable[[], None]) -> Iterator[None]:
        """Count a stream while it is open; `end` ends it.  Raises TooManyStreams.

        One that has not noticed yet that its client is gone does not count.
        """
        self._check(request)
        stream = OpenStream(request, end)
        self._open.append(stream)
        try:
            yield
        finally:
            self._open.remove(stream)

    def _check(self, request: web.Request) -> None:
        """Raise TooManyStreams when there are; what this looks at is not held by a stream."""
        here = [_peer(each.request) for each in self._open if each.request.transport is not None]
        if len(here) >= self._most:
            raise TooManyStreams(f"{self._most} streams are open already: end one of them")
        peer = _peer(request)
        if not _speaks_for_many(peer) and self._count(peer, here) >= self._of_one_address:
            raise TooManyStreams(f"{self._of_one_address} streams of this address are open already: end one of them")
        check_share_of_key(request, [each.request for each in self._open], self._most)

    def _count(self, peer: object, here: Sequence[object]) -> int:
        """Return how many of these streams count for the address of this one."""
        return Counter(address_of(cast(Any, each)) for each in here)[address_of(cast(Any, peer))]

    async def end_all(self, _: web.Application) -> None:
        """End every stream: a server that closes waits for its answers."""
        for each in tuple(self._open):
            each.end()


def check_share_of_key(request: web.Request, others: Iterable[web.Request], most: int) -> None:
    """Raise TooManyStreams where one key would have more than a quarter of all streams that there may be."""
    key, of_one = key_of(request), most // 4
    if key and sum(key_of(each) == key for each in others if each.transport is not None) >= of_one:
        raise TooManyStreams(f"{of_one} streams of this key are open already: end one of them")


def hold_little(request: web.Request) -> Transport:
    """Have the kernel keep little for this client: what it holds is behind the times."""
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
    return transport


def _peer(request: web.Request) -> object:
    return request.transport.get_extra_info("peername") if request.transport else None


def _speaks_for_many(peer: object) -> bool:
    """Return whether this is the socket, or an address of this machine."""
    return not isinstance(peer, tuple) or is_loopback(str(peer[0]).removeprefix("::ffff:"))
