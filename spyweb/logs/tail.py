"""Read the end of a log file, and follow what is written to it, across rotations."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from io import FileIO
from pathlib import Path

from spyweb.clock import Clock
from spyweb.errors import NoAccess
from spyweb.files import open_regular

NOTHING = (FileNotFoundError, NotADirectoryError)
BLOCK = 65_536  # bytes read at a time, from the end
LARGEST = 1 << 24  # bytes read in all: more than a log has before it is rotated
INTERVAL = 0.2  # seconds between reads: nothing announces new lines, and people read them


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines, oldest first; none when there is no file.  Raises NoAccess when it can't be read."""
    file = _open(path)
    if file is None:
        return []
    with file:
        return _lines(_read_end(file.fileno(), count))[-count:]


def _open(path: Path) -> FileIO | None:
    """Open the file; return None if there is none."""
    try:
        return open_regular(path)
    except NOTHING:
        return None
    except OSError as error:
        raise NoAccess(f"{path}: {error.strerror}") from error


def _read_end(descriptor: int, count: int) -> bytes:
    """Read enough blocks from the end for `count` whole lines; give up in a file without line breaks."""
    at = os.fstat(descriptor).st_size
    blocks: list[bytes] = []
    breaks = size = 0
    while at > 0 and breaks <= count and size < LARGEST:
        step = min(BLOCK, at)
        at -= step
        blocks.append(os.pread(descriptor, step, at))
        breaks += blocks[-1].count(b"\n")
        size += step
    return b"".join(reversed(blocks))


def _lines(data: bytes) -> list[str]:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.decode("utf-8", "replace") for line in lines]


class LogTail:
    """Reads what is added to a file, across rotations.  Close it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open(path)
        self._rest = b""
        if self._file:
            self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        if self._file:
            self._file.close()

    def read_new(self) -> list[str]:
        """Return the whole lines added since the last call; after a rotation those of the old file come first."""
        lines = self._read_on()
        if self._is_elsewhere():
            self.close()
            self._file, self._rest = _open(self._path), b""
            lines += self._read_on()
        return lines

    def _read_on(self) -> list[str]:
        if not self._file:
            return []
        whole, newline, self._rest = (self._rest + self._file.read()).rpartition(b"\n")
        return _lines(whole + newline)

    def _is_elsewhere(self) -> bool:
        """Return whether the name leads to another file by now, or the file was truncated."""
        try:
            named = self._path.stat()
        except NOTHING:
            return False
        if not self._file:
            return True
        ours = os.fstat(self._file.fileno())
        return named.st_ino != ours.st_ino or ours.st_size < self._file.tell()


async def follow(path: Path, clock: Clock, look_elsewhere: Callable[[], Sequence[str]] = tuple) -> AsyncIterator[str]:
    """Yield every line that is added from now on, and after those the lines that are found elsewhere."""
    with closing(LogTail(path)) as tail:
        while True:
            elsewhere = look_elsewhere()
            for line in (*tail.read_new(), *elsewhere):
                yield line
            await clock.sleep(INTERVAL)
