"""Copy what a child process writes to its stdout and stderr to the daemon's log.

The process has a pipe instead of the daemon's own streams: its output is read now and then, cut, and labelled.  If it
writes more than is read, the pipe is full and its write fails: it never waits.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import structlog

from spyweb.clock import Clock

log = structlog.get_logger()

EVERY = 0.1  # seconds between two reads at least, so that a traceback is read as a whole
MOST_READ = 65_536  # bytes in one read, which is what a pipe holds
MOST_SHOWN = 4_096  # bytes in one line of the log


class ChildOutput:
    """Reads the pipe of one process.  Close it when the process has ended: that logs the rest."""

    def __init__(self, who: str, clock: Clock) -> None:
        """Open a pipe.  Raises OSError."""
        self._who = who
        self._clock = clock
        self._reader, self.writer = os.pipe()  # the writer belongs to the process: `given` closes it here
        os.set_blocking(self._reader, False)
        os.set_blocking(self.writer, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._wait)

    def given(self) -> None:
        """Close the writer here, once the process has it or could not be started."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        self.given()
        if self._reader < 0:
            return
        self._loop.remove_reader(self._reader)
        self._read()
        os.close(self._reader)
        self._reader = -1

    def _wait(self) -> None:
        self._loop.remove_reader(self._reader)
        self._clock.call_later(EVERY, self._go_on)

    def _go_on(self) -> None:
        if self._reader < 0:
            return
        if self._read():
            self._loop.add_reader(self._reader, self._wait)

    def _read(self) -> bool:
        """Log what the pipe holds, and return whether there may be more."""
        with suppress(BlockingIOError):
            data = os.read(self._reader, MOST_READ)
            if not data:
                return False
            text = data[:MOST_SHOWN].decode("utf-8", "replace").strip()
            cut = f" ... ({len(data) - MOST_SHOWN} bytes cut)" if len(data) > MOST_SHOWN else ""
            log.error(f"{self._who} wrote to its error output", text=text + cut)
        return True
