"""Keep the beginning of what a command writes, and pass its lines on as they come.

What comes faster than the log takes it, or after what is kept is full, is counted: the command never waits for either.
"""

from __future__ import annotations

from collections.abc import Callable

from spyweb.clock import Clock
from spyweb.limits import LOG_BYTES_PER_S

LINES_PER_S = 5_000  # of all commands together, as of one worker
BURST_S = 0.2  # what is granted ahead
LONGEST_LINE = 4_096  # bytes of a line in the log; stdout and stderr have the whole of it

TellLine = Callable[[bytes], None]


class LineCredit:
    """Grants lines at a rate bounded in lines and in bytes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._lines = LINES_PER_S * BURST_S
        self._bytes = LOG_BYTES_PER_S * BURST_S

    def take(self, size: int) -> bool:
        """Return whether a line of this size may be logged now."""
        if self._lines < 1 or self._bytes < size:
            self._refill()
        if self._lines < 1 or self._bytes < size:
            return False
        self._lines -= 1
        self._bytes -= size
        return True

    def _refill(self) -> None:
        now = self._clock.monotonic()
        passed, self._at = now - self._at, now
        self._lines = min(self._lines + passed * LINES_PER_S, LINES_PER_S * BURST_S)
        self._bytes = min(self._bytes + passed * LOG_BYTES_PER_S, LOG_BYTES_PER_S * BURST_S)


class OutputCollector:
    """One stream of one command."""

    def __init__(self, most: int, credit: LineCredit, tell: TellLine) -> None:
        self._most = most
        self._credit = credit
        self._tell = tell
        self._pieces: list[bytes] = []
        self._size = 0
        self._line = b""  # the beginning of one that has not ended, at most LONGEST_LINE of it
        self.dropped = 0  # bytes beyond the most that is kept
        self.untold = 0  # lines

    @property
    def kept(self) -> bytes:
        return b"".join(self._pieces)

    def take(self, data: bytes) -> None:
        room = self._most - self._size
        if room > 0:
            self._pieces.append(data[:room])
            self._size += min(len(data), room)
        self.dropped += max(len(data) - max(room, 0), 0)
        self._split(data)

    def close(self) -> None:
        """Pass on the last line, if it has no end."""
        if self._line:
            self._pass_on(self._line)
            self._line = b""

    def _split(self, data: bytes) -> None:
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            line = (self._line + data[begin : min(end, begin + LONGEST_LINE)])[:LONGEST_LINE]
            self._line = b""
            begin = end + 1
            if not self._pass_on(line):
                self.untold += data.count(b"\n", begin)
                begin = data.rfind(b"\n") + 1
                break
        self._line += data[begin : begin + LONGEST_LINE - len(self._line)]

    def _pass_on(self, line: bytes) -> bool:
        if self._credit.take(len(line)):
            self._tell(line)
            return True
        self.untold += 1
        return False
