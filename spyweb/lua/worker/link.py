"""The worker's end of its two sockets: messages leave in batches, single big ones on the bulk socket.

Any thread may post; a flush sends all that is there.  A lost socket means that the daemon has ended: the worker ends.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from socket import socket

from spyweb.confined.frames import FrameReader
from spyweb.lua import wire
from spyweb.lua.worker import priority
from spyweb.lua.worker.priority import could_start_thread

_CHUNK = 65_536  # bytes read at once; malloc would give a larger buffer a separate mapping


def leave() -> None:
    """End the process, because the daemon has ended."""
    os._exit(0)


class Receiver:
    """Reads one socket."""

    def __init__(self, sock: socket) -> None:
        self._socket = sock
        self._reader = FrameReader(wire.decode_to_worker)
        self._chunk = bytearray(_CHUNK)
        self._view = memoryview(self._chunk)

    def read(self) -> list[wire.ToWorker]:
        """Wait for data, and return the messages that are complete."""
        try:
            size = self._socket.recv_into(self._chunk)
        except OSError:
            size = 0
        if not size:
            leave()
        return self._reader.feed(self._view[:size])


class Sender:
    """Writes to both sockets."""

    def __init__(self, small: socket, bulk: socket) -> None:
        self._small = small
        self._bulk = bulk
        self._outbox: deque[wire.Message] = deque()
        self._lock = threading.Lock()
        self._bulk_queue: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()
        self._bulk_started = False
        self.flushed = 0.0  # when the outbox was last empty
        self.post = self._outbox.append

    @property
    def waiting(self) -> int:
        return len(self._outbox)

    def flush(self) -> None:
        outbox = self._outbox
        with self._lock:
            batch: list[wire.Message] = []
            while outbox:
                batch.append(outbox.popleft())
            if batch:
                self._send(self._small, *wire.small_frames(batch))
            self.flushed = time.monotonic()

    def post_bulk(self, message: wire.Message) -> None:
        """Send a big message from a separate thread, if one can be started, so that a slow reader delays no other."""
        with self._lock:
            self._bulk_started = self._bulk_started or could_start_thread("bulk out", self._send_bulk)
            if self._bulk_started:
                self._bulk_queue.put(message)
            else:
                self._send(self._bulk, *wire.pieces(message))

    def _send_bulk(self) -> None:
        priority.give_way()
        while True:
            self._send(self._bulk, *wire.pieces(self._bulk_queue.get()))

    def _send(self, sock: socket, *parts: bytes) -> None:
        try:
            for part in parts:
                sock.sendall(part)
        except OSError:
            leave()
