"""Find and end the processes below this one, and make and remove the folders that commands have for temporary files.

A process that adopts orphans has all below it for as long as it lives, however they have detached themselves.  A nanny
holds a lock on its folder for as long as it lives, so that folders in use by other daemons are kept.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

NEW_MS = 60_000  # a folder that is younger may be one that its nanny is about to lock

_NAME = re.compile(rb"spyweb-[0-9a-f]{16}")
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def children_of(pid: int) -> list[int]:
    """Return the children of a process; none if it has ended, or if the system does not list them."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def descendants_of(pids: Iterable[int]) -> list[int]:
    """Return these processes and all below them, parents first."""
    found = list(pids)
    for pid in found:  # it grows meanwhile
        found += children_of(pid)
    return found


def kill_left(folder: bytes) -> None:
    """Kill processes with this temporary folder in their environment, and all below; nothing without /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if b"TMPDIR=" + folder in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    kill_all(found)


def is_stopped(pid: int) -> bool:
    """Return whether a process has been stopped, by SIGSTOP or a debugger, and not continued."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] in ("T", "t")
    return False


def send(pids: Iterable[int], *signals: signal.Signals) -> None:
    for pid in pids:
        for each in signals:
            with suppress(OSError):  # it has ended, or is another user's
                os.kill(pid, each)


def kill_all(pids: Iterable[int]) -> None:
    """Kill these processes and all below.  First they are stopped: one that is being killed could fork meanwhile."""
    top = list(pids)
    stopped: dict[int, None] = {}
    while new := [pid for pid in descendants_of(top) if pid not in stopped]:
        send(new, signal.SIGSTOP)
        stopped.update(dict.fromkeys(new))
    send(stopped, signal.SIGKILL)


# Folders for temporary files


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
