"""Let a file that is full give way: `data.csv` is renamed `data.20260514-143005.csv`, stamped in UTC.

A second one in the same second is named `data.20260514-143005-2.csv`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime

from spyweb.model import MIB

MAX_BYTES = 10 * MIB  # of one file
KEPT = 5  # older files
STAMP = "[0-9]{8}-[0-9]{6}"
FIRST = ("", 0)  # sorts before any other


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
