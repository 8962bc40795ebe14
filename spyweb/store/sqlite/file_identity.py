"""Check that an open database is still at its path, with all of its log.

What is written to a file that somebody has removed or replaced is lost with the process.  SQLite checks for that only
with a rollback journal (SQLITE_READONLY_DBMOVED), not in WAL mode.  If the log was cut off, it goes on writing after
the gap, and copies the gap into the database.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

from spyweb.errors import StoreCorrupt, StoreError, StoreMoved
from spyweb.store.marker import Stamp, stamp_of
from spyweb.store.sqlite.damage import index_of, size_of, wal_of

Identity = tuple[int, int]  # device and inode: no other file has them as long as this one is open

HEAD = struct.Struct("=HI")  # size of a page, and how many the log holds (mxFrame), as the machine writes them
AT = 14
LOG_HEADER, FRAME_HEADER = 32, 24  # bytes


class LogIndex:
    """The index of an open database's log, its -shm file (sqlite.org/walformat.html).

    Close it after the connections: closing it releases their locks.
    """

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


class FileIdentity:
    """Remembers the files that were opened: a database, and its log if the file system supports one."""

    def __init__(self, path: Path, index: LogIndex | None = None) -> None:
        self._path = path
        self._log = str(wal_of(path))
        self._log_size = size_of(wal_of(path))
        self._index = index
        files = [path, *filter(Path.exists, [wal_of(path)])]
        self._identities = {str(file): identity_of(os.stat(file)) for file in files}
        self.stamp = stamp_of(path)  # of the database, when it was looked at last

    def trouble(self) -> StoreError | None:
        """Return an error if the files are not those that were opened.  Any thread may call this."""
        for file, identity in self._identities.items():
            try:
                found = os.stat(file)
            except (FileNotFoundError, NotADirectoryError):
                return StoreMoved(file)
            except OSError:  # not accessible, which proves nothing: SQLite has it open
                continue
            if identity_of(found) != identity:
                return StoreMoved(file)
            if file != self._log:
                self.stamp = Stamp(found.st_size, found.st_mtime_ns)
            elif self._index and found.st_size < self._log_size and self._is_cut_off(self._index):
                return StoreCorrupt(self._path, f"{Path(file).name} was cut off while it was open")
            else:
                self._log_size = found.st_size
        return None

    def _is_cut_off(self, index: LogIndex) -> bool:
        """Return whether the log is too short, looking twice: another program may restart the log in between."""
        least = index.least_size()
        return size_of(Path(self._log)) < least == index.least_size()


def identity_of(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
