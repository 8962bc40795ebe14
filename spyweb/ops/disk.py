"""Read and write the files of a project for its jobs: inside the jail, and completely or not at all.

Two appends to one file don't mix, whichever jobs they come from; an overwritten file is at any moment the old one or
the new one, even after a power failure.  An append that would make a file too large begins a new one: `data.csv` is
renamed `data.20260514-143005.csv`, stamped in UTC; a second one in the same second `data.20260514-143005-2.csv`.
Everything here waits for the disk: call it in a thread.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from spyweb.clock import Clock
from spyweb.logs.files import write_whole
from spyweb.logs.job import NAME as LOG_NAME
from spyweb.model import MIB
from spyweb.ops.jail import SHARED, FilePlace, Forbidden, OpenFilePlace, entered, leads_to

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW  # NONBLOCK: opening a FIFO would wait for a writer
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
MODE = 0o640
PIECE = MIB  # bytes read at once
LOCKS = 64  # two files may share one
MAX_BYTES = 10 * MIB  # of one file
KEPT = 5  # older files
STAMP = "[0-9]{8}-[0-9]{6}"
FIRST = ("", 0)  # sorts before any other


class Files:
    """The files under one project root, with locks so that one writer at a time uses each."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self.top = os.path.realpath(root)
        self._clock = clock
        self._locks = tuple(Lock() for _ in range(LOCKS))

    def read(self, place: FilePlace, limit: int) -> bytes | None:
        """Return the content of a file, or None when there is none.  Raises Forbidden, OSError."""
        try:
            with entered(self.root, place) as spot, opened(spot, READ) as file:
                return _read_at_most(file, limit)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def append(self, place: FilePlace, content: bytes) -> None:
        """Append all of the content, or raise OSError and append none.  Raises Forbidden."""
        with entered(self.root, place, make=True) as spot, self._turn(spot):
            self._refuse_log(place, spot)
            with opened(spot, APPEND) as file:
                if not is_full(os.fstat(file).st_size, len(content)):
                    write_whole(file, content)
                    return
            rotate(spot.folder, spot.name, self._clock.now_ms())
            with opened(spot, APPEND) as file:
                write_whole(file, content)

    def overwrite(self, place: FilePlace, content: bytes) -> None:
        """Replace a file by one with this content.

        Raises Forbidden, OSError.  If the file has a second name (a hard link), that name keeps the old file.
        """
        with entered(self.root, place, make=True) as spot, self._turn(spot):
            self._refuse_log(place, spot)
            _refuse_others(spot)
            beside = f".{spot.name}.{secrets.token_hex(4)}.tmp"
            try:
                write_durably(spot.folder, beside, content)
                os.rename(beside, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=spot.folder)
                raise
            os.fsync(spot.folder)

    def _refuse_log(self, place: FilePlace, spot: OpenFilePlace) -> None:
        if place.folder != SHARED and leads_to(self.root, spot, FilePlace(place.folder, (LOG_NAME,))):
            raise Forbidden("it is the job's log, which spyweb alone writes")

    def _turn(self, spot: OpenFilePlace) -> Lock:
        return self._locks[hash(spot.path) % LOCKS]


def _read_at_most(file: int, limit: int) -> bytes:
    """Read a file, but never more than the script could take, even if the file grows meanwhile."""
    pieces, size = [], 0
    piece_size = min(PIECE, os.fstat(file).st_size + 1)
    while size <= limit and (piece := os.read(file, min(piece_size, limit + 1 - size))):
        pieces.append(piece)
        size += len(piece)
    if size > limit or os.fstat(file).st_size > limit:
        raise Forbidden(f"it is larger than the memory limit of its VM ({limit / MIB:g} MB)")
    return b"".join(pieces)


@contextmanager
def opened(spot: OpenFilePlace, flags: int) -> Iterator[int]:
    """Open a plain file that has no other name.  Raises Forbidden, OSError."""
    file = os.open(spot.name, flags, MODE, dir_fd=spot.folder)
    try:
        status = os.fstat(file)
        _check_plain(status)
        if status.st_nlink > 1:
            raise Forbidden("it is a hard link: the same file has a name elsewhere")
        yield file
    finally:
        os.close(file)


def _refuse_others(spot: OpenFilePlace) -> None:
    """Raise Forbidden for a folder or device, which a file must not replace."""
    with suppress(FileNotFoundError):
        _check_plain(os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False))


def _check_plain(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Forbidden("it is not a plain file")


def write_durably(folder: int, name: str, content: bytes) -> None:
    """Write a new file, which is on the disk before this returns."""
    file = os.open(name, CREATE, MODE, dir_fd=folder)
    try:
        write_whole(file, content)
        os.fsync(file)
    finally:
        os.close(file)


# Rotation, in an open folder


def is_full(size: int, more: int) -> bool:
    """Return whether this many more bytes are too many for a file of this size; an empty file takes anything."""
    return size > 0 and size + more > MAX_BYTES


def rotate(folder: int, name: str, now_ms: int) -> None:
    """Rename the file, and delete the oldest of those renamed before.  No other thread may use this file meanwhile."""
    names = os.listdir(folder)
    aside = name_aside(names, name, now_ms)
    with suppress(FileNotFoundError):
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    for old in kept_aside([*names, aside], name)[:-KEPT]:
        with suppress(FileNotFoundError):
            os.unlink(old, dir_fd=folder)


def name_aside(names: list[str], name: str, now_ms: int) -> str:
    """Return the new name of a full file, which sorts after those of the others, whatever the clock says."""
    stem, _, kind = name.rpartition(".")
    stamp, number = f"{datetime.fromtimestamp(now_ms // 1000, UTC):%Y%m%d-%H%M%S}", 1
    last = max((place_in_line(found, name) or FIRST for found in names), default=FIRST)
    if last >= (stamp, number):
        stamp, number = last[0], last[1] + 1
    return f"{stem}.{stamp}.{kind}" if number == 1 else f"{stem}.{stamp}-{number}.{kind}"


def kept_aside(names: list[str], name: str) -> list[str]:
    """Return the names of the older files of this name, oldest first."""
    places = {found: place for found in names if (place := place_in_line(found, name))}
    return sorted(places, key=places.__getitem__)


def place_in_line(found: str, name: str) -> tuple[str, int] | None:
    """Return the stamp and number in a file's name if it is an older file of this name."""
    stem, _, kind = name.rpartition(".")
    match = re.fullmatch(rf"{re.escape(stem)}\.({STAMP})(?:-([0-9]{{1,9}}))?\.{re.escape(kind)}", found)
    return (match[1], int(match[2] or 1)) if match else None
