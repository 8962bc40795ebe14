"""Open what a path leads to below an open folder: neither `..` nor a link leads out, whatever changes meanwhile.

The kernel does it (openat2 with RESOLVE_BENEATH).  Where it can't, or a filter of system calls forbids it, the path is
walked step by step: every step is an open folder, so one that is exchanged meanwhile is either seen or not used.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections import deque
from contextlib import suppress

from spyweb.ops.jail import FOLDER, Forbidden

OPENAT2 = 437  # the number of the system call, the same on every machine
NO_MAGICLINKS, BENEATH = 0x02, 0x08
ATTEMPTS = 100  # the kernel asks for another one when a folder on the way is moved meanwhile
MOST_LINKS = 40  # the kernel's own limit
LEADS_OUT = "it leads out of the folder that is permitted"

_libc = ctypes.CDLL(None, use_errno=True)


class OpenHow(ctypes.Structure):
    """The kernel's `struct open_how`."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class BeneathOpener:
    """Opens paths below folders, by the kernel as long as that works."""

    def __init__(self) -> None:
        self._has_openat2 = sys.platform == "linux"

    def open(self, folder: int, path: str, flags: int) -> int:
        """Return a descriptor of what the path leads to.  Raises Forbidden, OSError."""
        for _ in range(ATTEMPTS if self._has_openat2 else 0):
            found = openat2(folder, path, flags)
            if found >= 0:
                return found
            number = ctypes.get_errno()
            if number in (errno.ENOSYS, errno.EPERM):
                self._has_openat2 = False
                break
            if number == errno.EXDEV:
                raise Forbidden(LEADS_OUT)
            if number != errno.EAGAIN:
                raise OSError(number, os.strerror(number))
        return walk(folder, path, flags)


def openat2(folder: int, path: str, flags: int) -> int:
    """Return a descriptor, or -1 and leave the reason in ctypes' errno."""
    how = OpenHow(flags=flags, mode=0, resolve=BENEATH | NO_MAGICLINKS)
    return int(_libc.syscall(OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))


def walk(folder: int, path: str, flags: int) -> int:
    """Return a descriptor of what the path leads to, as `openat2` does.  Raises Forbidden, OSError."""
    steps = deque(_steps(path))
    opened = [os.dup(folder)]
    links = 0
    try:
        while steps:
            step = steps.popleft()
            if step == "..":
                if len(opened) == 1:
                    raise Forbidden(LEADS_OUT)
                os.close(opened.pop())
            elif (target := _target(opened[-1], step)) is not None:
                links += 1
                steps.extendleft(reversed(_steps(target, links)))
            elif steps:
                opened.append(os.open(step, FOLDER, dir_fd=opened[-1]))
            else:
                return os.open(step, flags | os.O_NOFOLLOW, dir_fd=opened[-1])
        return os.open(".", flags, dir_fd=opened[-1])
    finally:
        for each in opened:
            os.close(each)


def _steps(path: str, links: int = 0) -> list[str]:
    """Return the steps of a path, or of where a link leads, after `links` of them."""
    if path.startswith("/"):
        raise Forbidden(LEADS_OUT)
    if links > MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return [step for step in path.split("/") if step not in ("", ".")]


def _target(folder: int, step: str) -> str | None:
    """Return where a link leads; None for what is none, or not there."""
    with suppress(OSError):
        return os.readlink(step, dir_fd=folder)
    return None
