"""Read SQLite's index of the log of an open database, the -shm file (sqlite.org/walformat.html)."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

from spyweb.store.sqlite.damage import index_of

HEAD = struct.Struct("=HI")  # size of a page, and how many the log holds (mxFrame), as the machine writes them
AT = 14
LOG_HEADER, FRAME_HEADER = 32, 24  # bytes


class LogIndex:
    """The index of an open database's log.  Close it after the connections: closing it releases their locks."""

    def __init__(self, path: Path) -> None:
        self._file = -1  # there is none when SQLite keeps it in memory
        with suppress(OSError):
            self._file = os.open(index_of(path), os.O_RDONLY | os.O_CLOEXEC)

    def pages(self) -> int:
        """Return how many pages are in the log; 0 if that is unknown."""
        return self._read()[1]

    def least_size(self) -> int:
        """Return the least size in bytes of a log that holds all of its pages."""
        page_size, pages = self._read()
        return LOG_HEADER + pages * (FRAME_HEADER + (65_536 if page_size == 1 else page_size)) if pages else 0

    def _read(self) -> tuple[int, int]:
        if self._file >= 0:
            with suppress(OSError, struct.error):
                page_size, pages = HEAD.unpack(os.pread(self._file, HEAD.size, AT))
                return page_size, pages
        return 0, 0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
