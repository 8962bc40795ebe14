"""Refuse a database that has lost a part, before SQLite opens it.

SQLite takes a missing or empty file for a new database and deletes the log beside it; it takes a log whose beginning is
not valid for an empty one.  Everything that was acknowledged but not yet copied into the database would silently be
lost.  The files are only read here, and before any connection of this process is open: closing a file releases the
locks that SQLite has on it (sqlite.org/howtocorrupt.html).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.model import Durability
from spyweb.store.access import explain
from spyweb.store.marker import Known, stamp_of
from spyweb.store.sqlite.damage import files_of, index_of, refuse_missing, size_of, wal_of
from spyweb.store.sqlite.log_index import FRAME_HEADER, LOG_HEADER

MAGIC = b"SQLite format 3\0"
HEADER = 100  # bytes, of a database
LOG_MAGIC, LOG_FORMAT = 0x377F_0682, 3_007_000  # the last bit of the magic: whether checksums are big-endian


def refuse_incomplete(path: Path, durability: Durability, known: Known | None = None) -> None:
    """Raise StoreIncomplete or StoreCorrupt if the files are not as a daemon leaves them, however it ended."""
    try:
        refuse_missing(path, known.place if known else None)
        if size_of(path):
            _refuse_cut_off(path, durability, known)
    except OSError as error:
        raise explain(error, path) from error


def _refuse_cut_off(path: Path, durability: Durability, known: Known | None) -> None:
    log = Log(wal_of(path))
    _refuse_shorter(path, log)
    if log.is_begun:
        # If commits are not synced, anything may be missing from the log after the machine went down.
        may_be_torn = durability is Durability.NORMAL and known is not None and known.was_machine_down
        problem = "" if may_be_torn else log.problem()
        if problem:
            raise StoreIncomplete(path, f"its log {wal_of(path).name} {problem}", _log_files(path))
    elif known and known.unmerged is not None and known.unmerged == stamp_of(path):
        raise StoreIncomplete(
            path, f"its log {wal_of(path).name} is gone, with what was written last", _log_files(path)
        )


def _log_files(path: Path) -> tuple[Path, ...]:
    return wal_of(path), index_of(path)


def _refuse_shorter(path: Path, log: Log) -> None:
    """Raise if pages are missing from the database that the log does not have.

    A checkpoint that was interrupted may have stored the new size and not yet written the new pages: the log has them,
    except for those that were freed in the transaction that made them.
    """
    with path.open("rb") as file:
        header = file.read(HEADER)
    if not header.startswith(MAGIC) or len(header) < HEADER:
        raise StoreCorrupt(path, "file is not a database")
    page_size = _u16(header, 16)
    page_size = 65_536 if page_size == 1 else page_size
    if not page_size or _u32(header, 24) != _u32(header, 92):  # the size is not in the header
        return
    there, stated = path.stat().st_size // page_size, _u32(header, 28)
    missing = stated - there
    if missing > 0 and 2 * len({page for page in log.pages() if there < page <= stated}) < missing:
        raise StoreIncomplete(path, f"has {there} of its {stated} pages", files_of(path))


class Frame(NamedTuple):
    """The header of one page in a log."""

    page: int
    commits: bool  # the last one of a transaction
    salts: bytes


class Log:
    """A write-ahead log as it is on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = self._read(0, LOG_HEADER) if path.exists() else b""
        self._page_size = _u32(self._header, 8) if self.is_begun else 0

    @property
    def is_begun(self) -> bool:
        return len(self._header) == LOG_HEADER

    def problem(self) -> str:
        """Return what shows that the log is not as it was written; empty if nothing does."""
        header = self._header
        if not self._has_sound_header():
            return "is damaged"
        first = next(self._frames(), None)
        if first is None or first.salts in (header[16:24], bytes(8)):
            return "is damaged" if first and self._has_lost_commits() else ""
        # The first frame may still be from before the restart, if only the header was written since.
        before = (_u32(header, 16) - 1) % (1 << 32)
        return "" if _u32(first.salts, 0) == before else "is damaged"

    def pages(self) -> Iterator[int]:
        """Yield the numbers of the pages that were written since the log was last restarted."""
        if self._has_sound_header():
            yield from (frame.page for frame in self._frames() if frame.salts == self._header[16:24])

    def _has_sound_header(self) -> bool:
        header = self._header
        return (
            self.is_begun
            and _u32(header, 0) & ~1 == LOG_MAGIC
            and _u32(header, 4) == LOG_FORMAT
            and self._page_size in (1 << power for power in range(9, 17))
            and self._checksum(header[:24]) == _pair(header, 24)
        )

    def _has_lost_commits(self) -> bool:
        """Return whether acknowledged commits are missing.

        They are when the first frame is invalid though a whole transaction and the beginning of another follow.  A
        single transaction may have been cut off by a power failure.
        """
        frame = self._read(LOG_HEADER, FRAME_HEADER + self._page_size)
        checksum = self._checksum(frame[:8] + frame[FRAME_HEADER:], _pair(self._header, 24))
        if checksum == _pair(frame, 16):
            return False
        current = [frame.commits for frame in self._frames() if frame.salts == self._header[16:24]]
        return any(current[:-1])

    def _frames(self) -> Iterator[Frame]:
        step = FRAME_HEADER + self._page_size
        with self._path.open("rb") as file:
            for start in range(LOG_HEADER, os.fstat(file.fileno()).st_size - step + 1, step):
                head = os.pread(file.fileno(), FRAME_HEADER, start)
                yield Frame(page=_u32(head, 0), commits=_u32(head, 4) != 0, salts=head[8:16])

    def _read(self, start: int, size: int) -> bytes:
        with self._path.open("rb") as file:
            return os.pread(file.fileno(), size, start)

    def _checksum(self, data: bytes, begun: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        order = ">" if _u32(self._header, 0) & 1 else "<"
        words = struct.unpack(f"{order}{len(data) // 4}I", data)
        first, second = begun
        for word, next_word in zip(words[::2], words[1::2], strict=True):
            first = (first + word + second) & 0xFFFF_FFFF
            second = (second + next_word + first) & 0xFFFF_FFFF
        return first, second


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _pair(data: bytes, at: int) -> tuple[int, int]:
    return _u32(data, at), _u32(data, at + 4)
