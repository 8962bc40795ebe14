"""Open files at paths where anybody may have put something else."""

from __future__ import annotations

import os
import stat
from io import FileIO
from pathlib import Path


def open_regular(path: str | Path) -> FileIO:
    """Open a file for reading.  Raises OSError, also if it is not a regular file.

    Opening a named pipe would wait for a writer, and may block the daemon's loop.
    """
    file = FileIO(path, opener=_at_once)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(0, "not a regular file")


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
