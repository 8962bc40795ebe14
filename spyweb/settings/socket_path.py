"""The daemon's socket: `spyweb.sock` in the data directory, however long the path of that is."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from spyweb.errors import NoAccess

LIMIT = 103 if sys.platform == "darwin" else 107  # bytes of a path, as the kernel takes it


@contextmanager
def name_for_kernel(path: Path) -> Iterator[str]:
    """Yield a name of a socket that may be bound and connected to meanwhile."""
    if len(os.fsencode(path)) <= LIMIT:
        yield str(path)
    elif sys.platform == "darwin":
        with chdir(path.parent):
            yield path.name
    else:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{path.name}"
        finally:
            os.close(folder)


def clear_place(path: Path) -> None:
    """Remove an earlier daemon's socket, or its link to one.  Only for the holder of the lock."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISSOCK(mode) or stat.S_ISLNK(mode)):
        raise NoAccess(f"{path} is in the way: it is not a socket of spyweb; move it away")
    path.unlink()
