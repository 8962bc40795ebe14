"""The daemon's end of one worker's two sockets: batches of small messages on one, single big ones on the other.

What is sent in one turn of the event loop, or while a frame is read, leaves as one frame.  Whatever arrives is handed
on in order, a frame at a time; what breaks the protocol is reported to the listener, never raised into the loop.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import Transport
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from socket import socket
from typing import Protocol

from spyweb.confined.frames import HEADER, FrameReader
from spyweb.lua import wire
from spyweb.lua.wire import FromWorker, Message

if sys.platform == "linux":
    from mmap import MADV_HUGEPAGE

PIECE = 65_536  # bytes of a big frame read at once: uvloop would take many larger pieces in a row and hold the loop up
FULL_BATCH = 256  # messages; a frame leaves early rather than let its first answer wait for the last


class ConnectionListener(Protocol):
    """The worker process, as its connection sees it.  Once a socket is `lost`, nothing more comes over it."""

    def received(self, messages: Sequence[FromWorker]) -> None: ...

    def broke_protocol(self, error: Exception) -> None: ...

    @property
    def most_bulk(self) -> int:
        """Return the size in bytes of the largest message that it may send."""

    def lost(self) -> None: ...


class FlushQueue:
    """The connections of all workers that have something to send.

    All are flushed in the loop's next turn at the latest, and before and after another worker's ops are read: otherwise
    workers fall into lockstep and one core idles.
    """

    def __init__(self) -> None:
        self._call_soon = asyncio.get_running_loop().call_soon
        self._flushes: list[Callable[[], None]] = []

    def add(self, flush: Callable[[], None]) -> None:
        """Add a connection's flush, which is then called once."""
        if not self._flushes:
            self._call_soon(self.flush_all)
        self._flushes.append(flush)

    def flush_all(self) -> None:
        flushes = self._flushes
        if flushes:
            self._flushes = []
            for flush in flushes:
                flush()


class SmallStream(asyncio.Protocol):
    """Reads the batches of small messages."""

    def __init__(self, listener: ConnectionListener, flush_queue: FlushQueue) -> None:
        self._listener = listener
        self._flush_queue = flush_queue
        self.drop()

    def drop(self) -> None:
        """Free the memory of an unfinished frame."""
        self._reader = FrameReader(wire.decode_from_worker, wire.SMALL_FRAME)

    def data_received(self, data: bytes) -> None:
        self._flush_queue.flush_all()
        try:
            self._listener.received(self._reader.feed(data))
            self._flush_queue.flush_all()
        except Exception as error:  # noqa: BLE001 - the worker is killed
            self._listener.broke_protocol(error)

    def connection_lost(self, _error: Exception | None) -> None:
        self._listener.lost()


class BulkStream(asyncio.BufferedProtocol):
    """Reads the big messages, each straight into the buffer it is decoded from; a FrameReader would copy it."""

    def __init__(self, listener: ConnectionListener) -> None:
        self._listener = listener
        self._looks = 0  # at the message that is not whole yet
        self.drop()

    def drop(self) -> None:
        """Free the memory of an unfinished message, and expect a header."""
        self._expect(memoryview(bytearray(HEADER)), is_header=True)

    def _expect(self, frame: memoryview, *, is_header: bool) -> None:
        self._frame = frame
        self._is_header = is_header
        self._filled = 0

    def look(self) -> int:
        """Count the calls in a row during which one message was still arriving."""
        self._looks = 0 if self._is_header and not self._filled else self._looks + 1
        return self._looks

    def get_buffer(self, _size: int) -> memoryview:
        return self._frame[self._filled : self._filled + PIECE]

    def buffer_updated(self, size: int) -> None:
        self._filled += size
        if self._filled < len(self._frame):
            return
        frame = self._frame
        try:
            if self._is_header:
                size = int.from_bytes(frame, "little")
                if not 0 < size <= self._listener.most_bulk:
                    raise ValueError(f"a frame of {size} bytes")
                room = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)  # no page is touched before it is filled
                if sys.platform == "linux":
                    with suppress(OSError):  # a kernel without huge pages; with them, fresh pages cost a fifth
                        room.madvise(MADV_HUGEPAGE)
                self._expect(memoryview(room), is_header=False)
            else:
                self._looks = 0
                self.drop()
                self._listener.received(wire.decode_from_worker(frame))
        except Exception as error:  # noqa: BLE001 - the worker is killed
            self.drop()
            self._listener.broke_protocol(error)

    def connection_lost(self, _error: Exception | None) -> None:
        self._listener.lost()


class SocketWriter:
    """Writes to one of the sockets; earlier writes are kept until it is open."""

    def __init__(self, protocol: SmallStream | BulkStream) -> None:
        self._protocol = protocol
        self._waiting: list[bytes] | None = []
        self._transport: Transport | None = None

    async def open(self, sock: socket) -> None:
        """Take over a connected socket."""
        sock.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self._protocol, sock=sock)
        self._transport = transport
        transport.write(b"".join(self._waiting or ()))
        self._waiting = None

    def write(self, frame: bytes) -> None:
        if self._waiting is not None:
            self._waiting.append(frame)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)  # to one whose worker has died uvloop would raise

    def close(self) -> None:
        self._waiting = None
        self._protocol.drop()
        if self._transport is not None:
            self._transport.abort()


class WorkerConnection:
    """Both sockets of one worker; messages sent before they are open are kept until then."""

    def __init__(self, listener: ConnectionListener, flush_queue: FlushQueue) -> None:
        self._small = SocketWriter(SmallStream(listener, flush_queue))
        bulk = BulkStream(listener)
        self._bulk = SocketWriter(bulk)
        self.look = bulk.look
        self._outbox: list[Message] = []
        self._flush_queue = flush_queue

    async def open(self, small: socket, bulk: socket) -> None:
        """Take over both sockets; they are closed even if this fails."""
        with ExitStack() as on_failure:
            on_failure.callback(bulk.close)
            on_failure.callback(small.close)
            await self._small.open(small)
            await self._bulk.open(bulk)
            on_failure.pop_all()

    def send(self, message: Message) -> None:
        outbox = self._outbox
        outbox.append(message)
        waiting = len(outbox)
        if waiting == 1:
            self._flush_queue.add(self._flush)
        elif waiting >= FULL_BATCH:
            self._flush()

    def send_sized(self, message: Message, size: int) -> None:
        """Send a message of about this many bytes, by the second socket if it is big."""
        if size > wire.BULK:
            self.send_bulk(message)
        else:
            self.send(message)

    def send_bulk(self, message: Message) -> None:
        for piece in wire.pieces(message):
            self._bulk.write(piece)

    def _flush(self) -> None:
        if self._outbox:
            self._small.write(wire.frame(self._outbox))
            self._outbox.clear()

    def close(self) -> None:
        self._small.close()
        self._bulk.close()
