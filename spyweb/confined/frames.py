"""Frames, by which spyweb's processes speak: a 4-byte little-endian length, and so many bytes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Generic, TypeVar

HEADER = 4  # bytes: the length of a frame
MAX_FRAME = 1 << 30  # bytes; a peer that sends more is broken

Received = TypeVar("Received")


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(HEADER, "little") + body


def receive_frame(sock: socket.socket) -> bytes:
    """Wait for the next frame, and return its body; empty at the end of the stream, also within a frame."""
    header = receive_whole(sock, HEADER)
    return receive_whole(sock, int.from_bytes(header, "little"))


def receive_whole(sock: socket.socket, size: int) -> bytes:
    """Wait for exactly this many bytes; return none if the stream ends before."""
    data = sock.recv(size, socket.MSG_WAITALL) if size else b""
    while 0 < len(data) < size:  # a signal, SIGCONT too, has ended that early
        piece = sock.recv(size - len(data), socket.MSG_WAITALL)
        data = data + piece if piece else b""
    return data


class FrameReader(Generic[Received]):
    """Splits a byte stream into frames of at most `most` bytes, and decodes the messages in them."""

    def __init__(self, decode: Callable[[memoryview], list[Received]], most: int = MAX_FRAME) -> None:
        self._decode = decode
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[Received]:
        """Return all messages that are complete by now, in order.  Raises ValueError on an invalid frame."""
        buffer = self._buffer
        buffer += data
        messages: list[Received] = []
        at = 0
        with memoryview(buffer) as view:
            while len(view) - at >= HEADER:
                size = int.from_bytes(view[at : at + HEADER], "little")
                if size > self._most:
                    raise ValueError(f"a frame of {size} bytes")
                if len(view) - at - HEADER < size:
                    break
                at += HEADER + size
                messages += self._decode(view[at - size : at])
        if at:
            del buffer[:at]
        return messages
