"""Read log files: the last lines, and those of a span of time.

Stamped lines are in the order of their stamps, which sort as text: so the place of a moment is found by halving.  A
clock that was set back breaks the order; then lines may be missed, which a reader of a log can bear.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from msgspec import Struct

from spyweb.errors import NoAccess
from spyweb.files import open_regular
from spyweb.logs.output import stamp

KEPT = 5  # older files: NAME.1 is the newest of them
NOTHING = (FileNotFoundError, NotADirectoryError)
BLOCK = 65_536  # bytes read at a time, from the end
LARGEST = 1 << 24  # bytes read in all: more than a log has before it is rotated
MOST_BYTES = 256 * 1024  # that are shown of one span

_STAMPED = re.compile(rb"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z ", re.MULTILINE)
_OVERLAP = 32  # bytes, more than a stamp: one may lie over the end of a block
LAST = b"~"  # sorts after every stamp


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines, oldest first; none when there is no file.  Raises NoAccess when it can't be read."""
    try:
        file = open_regular(path)
    except NOTHING:
        return []
    except OSError as error:
        raise NoAccess(f"{path}: {error.strerror}") from error
    blocks: list[bytes] = []
    breaks = size = 0
    with file:
        at = os.fstat(file.fileno()).st_size
        while at > 0 and breaks <= count and size < LARGEST:  # until a file without line breaks is given up
            step = min(BLOCK, at)
            at -= step
            blocks.append(os.pread(file.fileno(), step, at))
            breaks += blocks[-1].count(b"\n")
            size += step
    return _lines(b"".join(reversed(blocks)))[-count:]


def _lines(data: bytes) -> list[str]:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.decode("utf-8", "replace") for line in lines]


class LogRange(Struct, frozen=True, kw_only=True):
    """The lines of a span of time, oldest first; of very many the latest."""

    lines: tuple[str, ...] = ()
    is_cut: bool = False


def lines_between(path: Path, first_ms: int, last_ms: int, most: int = MOST_BYTES) -> LogRange:
    """Return the lines stamped within a span of time, both ends included, with the indented lines below them.

    Older, rotated files are read as well.  A file that is missing or can't be read has no lines.
    """
    first, after = stamp(first_ms).encode(), stamp(last_ms + 1).encode()
    parts: list[bytes] = []
    left = most
    for file in _newest_first(path):
        with file:
            size = os.fstat(file.fileno()).st_size
            begin = _place_of(file, size, first)
            end = max(begin, _place_of(file, size, after))
            parts.append(os.pread(file.fileno(), min(left, end - begin), max(begin, end - left)))
            if end - begin > left:
                return LogRange(lines=tuple(_lines(b"".join(reversed(parts)))[1:]), is_cut=True)
            left -= end - begin
            if begin > 0:  # older files have only older lines
                break
    return LogRange(lines=tuple(_lines(b"".join(reversed(parts)))))


def _newest_first(path: Path) -> Iterator[FileIO]:
    for each in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, KEPT + 1))):
        try:
            yield open_regular(each)
        except OSError:
            return


def _place_of(file: FileIO, size: int, wanted: bytes) -> int:
    """Return the offset of the first stamped line that is not before this stamp; the size where there is none."""
    at = bisect_left(range(size), wanted, key=lambda offset: _next_stamp(file, offset, size)[1])
    return _next_stamp(file, at, size)[0]


def _next_stamp(file: FileIO, offset: int, size: int) -> tuple[int, bytes]:
    """Return the offset and the stamp of the first stamped line that begins at or after the offset, or at the end."""
    begin = max(0, offset - 1)  # with the line break before, so that a stamp within a line is none
    while begin < size:
        block = os.pread(file.fileno(), BLOCK + _OVERLAP, begin)
        for found in _STAMPED.finditer(block):
            at = begin + found.start()
            if at >= offset and (found.start() > 0 or at == 0):
                return at, found[0][:-1]
        begin += BLOCK
    return size, LAST
