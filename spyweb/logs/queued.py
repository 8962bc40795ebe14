"""Write stdout and stderr of a process that must never wait for their reader.

A pipe whose reader stalls, or a terminal that is stopped with Ctrl-S, blocks a plain write for as long as that lasts.
Here a thread writes.  Lines that do not fit into its queue are dropped and counted.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

import structlog

from spyweb.limits import LOG_QUEUE

CHUNK = 1 << 16  # bytes written at a time
LAST_WRITES_S = 2.0  # for what is queued when the process ends

log = structlog.get_logger()


class QueuedStream(io.TextIOBase):
    """A text stream that never blocks and never raises: a thread writes its queue.

    When the queue is full, everything is dropped until half of it has been written; then `on_dropped` is called, in the
    thread, with the number of lines that are missing.
    """

    def __init__(self, stream: TextIO, on_dropped: Callable[[int], None], limit: int = LOG_QUEUE) -> None:
        self._stream = stream
        self._on_dropped = on_dropped
        self._limit = limit
        self._queue: deque[bytes] = deque()
        self._size = 0  # bytes queued or just being written
        self._dropped = 0  # lines
        self._is_ending = False
        self._changed = threading.Condition()
        # A daemon thread: one that hangs in a write must not keep the process from ending.
        self._thread = threading.Thread(target=self._write_queued, name="spyweb output", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        data = text.encode(self.encoding, "backslashreplace")
        with self._changed:
            if self._dropped or self._size + len(data) > self._limit:
                self._dropped += max(text.count("\n"), 1)
            else:
                self._queue.append(data)
                self._size += len(data)
            self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Return at once: the caller does not wait."""

    def finish(self, seconds: float = LAST_WRITES_S) -> None:
        """Wait, for so long at most, until everything is written, and end the thread."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _write_queued(self) -> None:
        while chunk := self._next_chunk():
            rest = memoryview(chunk)
            while rest:
                try:
                    rest = rest[os.write(self._stream.fileno(), rest) :]
                except BlockingIOError:  # somebody who shares the terminal has made it non-blocking
                    select.select([], [self._stream.fileno()], [])
                except (OSError, ValueError):  # no reader, or a full disk
                    break
            with self._changed:
                self._size -= len(chunk)

    def _next_chunk(self) -> bytearray:
        """Wait for something to write, and return it; empty at the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._dropped or self._is_ending)
                dropped = 0
                if self._size <= self._limit // 2:
                    dropped, self._dropped = self._dropped, 0
                if not dropped:
                    taken = bytearray()
                    while self._queue and len(taken) < CHUNK:
                        taken += self._queue.popleft()
                    return taken
            self._on_dropped(dropped)


@contextmanager
def queued_standard_streams() -> Iterator[None]:
    """Queue all output of this process from here on, and write the rest at the end."""
    before = sys.stdout, sys.stderr
    sys.stdout.flush()
    sys.stderr.flush()
    out = QueuedStream(sys.stdout, _tell_dropped)
    # One queue for both keeps the lines of one file in order.
    err = out if os.path.sameopenfile(*(each.fileno() for each in before)) else QueuedStream(sys.stderr, _tell_dropped)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        ends = time.monotonic() + LAST_WRITES_S
        for stream in {out, err}:
            stream.finish(max(0.0, ends - time.monotonic()))


def _tell_dropped(lines: int) -> None:
    log.warning("log lines were dropped: they came faster than they were read", lines=lines)
