"""Open stdin, stdout and stderr again where whoever started this process has closed one of them.

The next file that is opened would get its number: a socket would be taken for stdout, and libuv ends the process
rather than close such a one.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO, cast

STANDARD = (0, 1, 2)


def open_standard_streams() -> None:
    """Open /dev/null in place of each that is closed, also for the programs that this one starts or becomes."""
    for descriptor in STANDARD:
        if not _is_open(descriptor):
            _open_nothing(descriptor)
    sys.stdin = sys.stdin or _stream(0, "r")
    sys.stdout = sys.stdout or _stream(1, "w")
    sys.stderr = sys.stderr or _stream(2, "w")


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _open_nothing(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing == descriptor:
        os.set_inheritable(nothing, True)
        return
    os.dup2(nothing, descriptor)
    os.close(nothing)


def _stream(descriptor: int, mode: str) -> TextIO:
    return cast(TextIO, open(descriptor, mode, encoding="utf-8", closefd=False))
