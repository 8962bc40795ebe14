"""Make the folder for temporary files that each command has, and remove those whose nanny was killed.

A nanny holds a lock on its folder for as long as it lives, so that those of other daemons are told from what is left.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress

NEW_MS = 60_000  # a folder that is younger may be one that its nanny is about to lock

_NAME = re.compile(rb"spyweb-[0-9a-f]{16}")
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(temporary: bytes) -> bytes:
    """Make a folder, locked until this process ends, and return its path.  Raises OSError, with the path."""
    folder = os.path.join(temporary, b"spyweb-" + os.urandom(8).hex().encode())
    os.mkdir(folder, 0o700)
    with suppress(OSError):  # a file system without locks: nothing there is taken for left
        fcntl.flock(os.open(folder, _OPEN), fcntl.LOCK_EX | fcntl.LOCK_NB)  # left open: its end is the lock's
    return folder


def remove_folder(folder: bytes) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        import shutil  # what few commands need would cost the memory of each nanny

        shutil.rmtree(folder, ignore_errors=True)


def remove_left(temporary: bytes, now_ms: int) -> None:
    """Remove the folders that nannies of this user have left.  Waits for the disk."""
    try:
        names = os.listdir(temporary)
    except OSError:
        return
    for name in names:
        if _NAME.fullmatch(name):
            with suppress(OSError):  # it is in use, another user's, or gone
                _remove_if_left(os.path.join(temporary, name), now_ms)


def _remove_if_left(folder: bytes, now_ms: int) -> None:
    opened = os.open(folder, _OPEN)
    try:
        status = os.fstat(opened)
        if status.st_uid == os.geteuid() and now_ms - status.st_mtime * 1000 > NEW_MS:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
    finally:
        os.close(opened)
