"""The daemon's end of one worker's two sockets: batches of small messages on one, single big ones on the other.

What is sent in one turn of the event loop leaves as one frame.  Whatever arrives is handed on in order, a frame at a
time; what can't be right is reported as nonsense, never raised into the loop.
"""

from __future__ import annotations

import asyncio
from asyncio import Transport
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from mmap import mmap
from socket import socket
from typing import Protocol

from spyweb.lua import wire

HEADER = 4  # bytes: the length of a frame
PIECE = 65_536  # bytes of a big frame read at once: of larger pieces uvloop takes 7 MB in a row, for 15 ms
FULL_BATCH = 256  # messages; a frame leaves early rather than let its first answer wait for the last


class Listener(Protocol):
    """Who hears what a worker says."""

    def received(self, messages: Iterable[list[object]]) -> None: ...

    def talked_nonsense(self, error: Exception) -> None: ...

    def lost(self) -> None:
        """One of the sockets is gone: nothing more will come over it."""


class SmallStream(asyncio.Protocol):
    """Hears the batches of small messages."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._reader = wire.Reader()

    def data_received(self, data: bytes) -> None:
        try:
            self._listener.received(self._reader.feed(data))
        except Exception as error:  # noqa: BLE001 - one worker's messages: nonsense costs that worker, not the loop
            self._listener.talked_nonsense(error)

    def connection_lost(self, _error: Exception | None) -> None:
        self._listener.lost()


class BulkStream(asyncio.BufferedProtocol):
    """Hears the big messages: each is read into the place where it is decoded.

    Copying 8 MB four times more, as wire.Reader does, held the loop up for 18 ms instead of 6.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._expect(bytearray(HEADER))

    def _expect(self, frame: bytearray | mmap) -> None:
        self._frame = frame
        self._filled = 0

    def get_buffer(self, _size: int) -> memoryview:
        return memoryview(self._frame)[self._filled : self._filled + PIECE]

    def buffer_updated(self, size: int) -> None:
        self._filled += size
        if self._filled < len(self._frame):
            return
        frame = self._frame
        try:
            if isinstance(frame, bytearray):
                self._expect(_room_for(frame))
            else:
                self._expect(bytearray(HEADER))
                self._listener.received(wire.unpack(memoryview(frame)))  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - as above
            self._listener.talked_nonsense(error)

    def connection_lost(self, _error: Exception | None) -> None:
        self._listener.lost()


def _room_for(header: bytearray) -> mmap:
    """A mapping, since its pages are not touched before they are filled."""
    size = int.from_bytes(header, "little")
    if size > wire.MAX_FRAME:
        raise ValueError(f"a frame of {size} bytes")
    return mmap(-1, size)


class Outlet:
    """Writes one of the sockets.  What is written before it is open waits."""

    def __init__(self, hear: asyncio.BaseProtocol) -> None:
        self._hear = hear
        self._waiting: list[bytes] = []
        self._transport: Transport | None = None
        self.write: Callable[[bytes], None] = self._waiting.append

    async def open(self, sock: socket) -> None:
        """Takes the socket over, connected already."""
        sock.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self._hear, sock=sock)
        self._transport = transport
        transport.write(b"".join(self._waiting))
        self.write = partial(_write, transport)

    def close(self) -> None:
        self.write = _ignore
        if self._transport is not None:
            self._transport.abort()


class Link:
    """Sends to one worker."""

    def __init__(self, listener: Listener) -> None:
        self._small = Outlet(SmallStream(listener))
        self._bulk = Outlet(BulkStream(listener))
        self._outbox: list[object] = []
        self._call_soon = asyncio.get_running_loop().call_soon

    async def open(self, small: socket, bulk: socket) -> None:
        """Takes both over, whatever happens."""
        with ExitStack() as if_not:
            if_not.callback(bulk.close)
            if_not.callback(small.close)
            await self._small.open(small)
            await self._bulk.open(bulk)
            if_not.pop_all()

    def send(self, message: list[object]) -> None:
        outbox = self._outbox
        outbox.append(message)
        waiting = len(outbox)
        if waiting == 1:
            self._call_soon(self._flush)
        elif waiting >= FULL_BATCH:
            self._flush()

    def send_sized(self, message: list[object], size: int) -> None:
        """As `send`, for a message that may be big: `size` is about how many bytes it takes."""
        if size > wire.BULK:
            self.send_bulk(message)
        else:
            self.send(message)

    def send_bulk(self, message: list[object]) -> None:
        body = wire.pack([message])
        self._bulk.write(len(body).to_bytes(HEADER, "little"))
        self._bulk.write(body)

    def _flush(self) -> None:
        if self._outbox:
            self._small.write(wire.frame(self._outbox))
            self._outbox.clear()

    def close(self) -> None:
        self._small.close()
        self._bulk.close()


def _write(transport: Transport, frame: bytes) -> None:
    """uvloop raises where the worker has just died and nobody has been told yet."""
    if not transport.is_closing():
        transport.write(frame)


def _ignore(_frame: bytes) -> None:
    """The worker is gone: nobody reads it."""
