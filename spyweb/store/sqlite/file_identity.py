"""Check that an open database is still at its path, with all of its log.

What is written to a file that somebody has removed or replaced is lost with the process.  SQLite checks for that only
with a rollback journal (SQLITE_READONLY_DBMOVED), not in WAL mode.  If the log was cut off, it goes on writing after
the gap, and copies the gap into the database.
"""

from __future__ import annotations

import os
from pathlib import Path

from spyweb.errors import StoreCorrupt, StoreError, StoreMoved
from spyweb.store.marker import Stamp, stamp_of
from spyweb.store.sqlite.damage import size_of, wal_of
from spyweb.store.sqlite.log_index import LogIndex

Identity = tuple[int, int]  # device and inode: no other file has them as long as this one is open


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
