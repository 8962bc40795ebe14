"""Open streams of events, count those of an app, and end them when its server closes."""

from __future__ import annotations

import socket
from asyncio import Transport
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web

from spyweb.web.access.hosts import is_loopback
from spyweb.web.connections import address_of

KERNEL_BYTES = 64 * 1024  # that the kernel may keep for one stream; it takes twice that for what is around them
RETRY_AFTER_S = "10"


@dataclass(frozen=True, slots=True, eq=False)
class OpenStream:
    request: web.Request
    end: Callable[[], None]


class EventStreams:
    """Counts the streams of one kind.

    One address has only so many, but for this machine: a reverse proxy there speaks for everybody.
    """

    def __init__(self, most: int, of_one_address: int) -> None:
        self._most = most
        self._of_one_address = of_one_address
        self._open: list[OpenStream] = []

    @contextmanager
    def one(self, request: web.Request, end: Callable[[], None]) -> Iterator[None]:
        """Count a stream while it is open; `end` ends it.  Raises HTTPServiceUnavailable when there are too many.

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
        """Raise HTTPServiceUnavailable when there are too many; what this looks at is not held by a stream."""
        here = [_peer(each.request) for each in self._open if each.request.transport is not None]
        if len(here) >= self._most:
            self._refuse(f"{self._most} streams are open already: end one of them")
        peer = _peer(request)
        if not _speaks_for_many(peer) and self._count(peer, here) >= self._of_one_address:
            self._refuse(f"{self._of_one_address} streams of this address are open already: end one of them")

    def _count(self, peer: object, here: Sequence[object]) -> int:
        """Return how many of these streams count for the address of this one."""
        return Counter(address_of(cast(Any, each)) for each in here)[address_of(cast(Any, peer))]

    def _refuse(self, text: str) -> None:
        raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": RETRY_AFTER_S})

    async def end_all(self, _: web.Application) -> None:
        """End every stream: a server that closes waits for its answers."""
        for each in tuple(self._open):
            each.end()


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
