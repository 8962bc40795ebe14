"""Find the lines that a log has of a span of time.  Reads files, so call it in a thread.

Stamped lines are in the order of their stamps, which sort as text: so the place is found by halving.  A clock that was
set back breaks the order; then lines may be missed, which a reader of a log can bear.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from msgspec import Struct

from spyweb.files import open_regular
from spyweb.logs.files import KEPT
from spyweb.logs.render import stamp

MOST_BYTES = 256 * 1024  # that are shown of one span
BLOCK = 65_536  # bytes read at a time in search of the next stamped line

_STAMPED = re.compile(rb"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z ", re.MULTILINE)
_OVERLAP = 32  # bytes, more than a stamp: one may lie over the end of a block


class LogRange(Struct, frozen=True, kw_only=True):
    """The lines of a span of time, oldest first; of very many the latest."""

    lines: tuple[str, ...] = ()
    is_cut: bool = False


def lines_between(path: Path, first_ms: int, last_ms: int, most: int = MOST_BYTES) -> LogRange:
    """Return the lines whose stamps are not before the one moment and not after the other, with those indented below.

    Older files that were rotated away are looked at as well.  A file that is not there, or can't be read, has none.
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
                return LogRange(lines=_lines(b"".join(reversed(parts)), is_cut=True), is_cut=True)
            left -= end - begin
            if begin > 0:  # older files have only older lines
                break
    return LogRange(lines=_lines(b"".join(reversed(parts)), is_cut=False))


def _newest_first(path: Path) -> Iterator[FileIO]:
    for each in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, KEPT + 1))):
        try:
            yield open_regular(each)
        except OSError:
            return


def _place_of(file: FileIO, size: int, wanted: bytes) -> int:
    """Return the offset of the first stamped line that is not before this stamp; the size where there is none."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        found = _next_stamp(file, middle, high)
        if found is None:
            high = middle
        elif found[1] < wanted:
            low = found[0] + 1
        else:
            high = middle
    found = _next_stamp(file, low, size)
    return size if found is None else found[0]


def _next_stamp(file: FileIO, offset: int, end: int) -> tuple[int, bytes] | None:
    """Return the offset and the stamp of the first stamped line that begins at or after the offset, before the end."""
    begin = max(0, offset - 1)  # with the line break before, so that a stamp within a line is none
    while begin < end:
        block = os.pread(file.fileno(), BLOCK + _OVERLAP, begin)
        for found in _STAMPED.finditer(block):
            at = begin + found.start()
            if offset <= at < end and (found.start() > 0 or at == 0):
                return at, found[0][:-1]
        begin += BLOCK
    return None


def _lines(data: bytes, *, is_cut: bool) -> tuple[str, ...]:
    """Return whole lines; what is left of one that was cut is left out."""
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if is_cut:
        lines = lines[1:]
    return tuple(line.decode("utf-8", "replace") for line in lines)
