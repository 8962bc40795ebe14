"""Lock a data directory for one daemon, and a database for one writer; the system releases a dead holder's locks.

The lock of a data directory is a file that says who holds it.  It is never removed: otherwise two daemons could each
hold a lock, on two files with one name.  The lock of a database is on the database file itself, whatever path leads to
it, and `NAME-lock` beside it only says who holds that.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from spyweb.clock import Clock, RealClock
from spyweb.errors import LockHeld, legible
from spyweb.settings.sections import LOCK_NAME
from spyweb.store.access import explain, make_private, user_name

# In the page that SQLite leaves free for locks, after the bytes that it locks itself (sqlite.org/src: PENDING_BYTE).
LOCKED_BYTE = 0x4000_0000 + 4095


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a lock, as the lock's file names it."""

    pid: int
    host: str
    user: str
    started: str
    root: str

    def __str__(self) -> str:
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"pid {self.pid} ({self.user}){where} since {self.started}"


class Lock(AbstractContextManager["Lock"]):
    """A lock, held from its creation until it is released or its process ends."""

    def __init__(self, path: Path, holder: Holder, take: Callable[[Path], int], holder_file: Path) -> None:
        self._path = path
        self._holder = msgspec.json.encode(holder) + b"\n"
        self._holder_file = holder_file
        self._file: int | None = take(path)
        try:
            write_private(holder_file, self._holder)
        except OSError:
            self.release()
            raise

    def restore(self) -> bool:
        """Make the file of a directory's lock again if it was removed; return whether it was.  Raises LockHeld."""
        if self._file is None or is_same_file(self._file, self._path):
            return False
        file = lock_file(self._path)
        os.close(self._file)
        self._file = file
        write_private(self._holder_file, self._holder)
        return True

    def release(self) -> None:
        """Release the lock; doing so twice is harmless."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __exit__(self, *_: object) -> None:
        self.release()


def hold_lock(data_dir: Path, *, root: Path | None = None, clock: Clock | None = None) -> Lock:
    """Lock the data directory, made private.  Raises LockHeld with the holder, and NoAccess with the owner."""
    path = data_dir / LOCK_NAME
    try:
        make_private(data_dir)
        return Lock(path, this_process(root or data_dir.parent, clock or RealClock()), lock_file, path)
    except OSError as error:
        raise explain(error, data_dir) from error


def hold_database(path: Path, *, clock: Clock | None = None) -> Lock:
    """Lock a database for writing, after making its file if it is absent.

    SQLite's own locks belong to the process, and are lost when any descriptor of the file is closed: release this after
    its connections.  Raises LockHeld with the holder, NoAccess and StoreError.
    """
    try:
        return Lock(path, this_process(path.parent, clock or RealClock()), lock_byte, holder_file_of(path))
    except OSError as error:
        raise explain(error, path) from error


def holder_file_of(database: Path) -> Path:
    real = Path(os.path.realpath(database))
    return real.with_name(f"{real.name}-lock")


def lock_byte(path: Path) -> int:
    """Open a database and lock a byte that SQLite never locks: a lock of the open file (fcntl_locking(2))."""
    byte = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, LOCKED_BYTE, 1, 0)
    try:
        return open_locked(path, lambda file: fcntl.fcntl(file, fcntl.F_OFD_SETLK, byte))
    except BlockingIOError as error:
        raise LockHeld(path, describe(holder_file_of(path), with_project=True)) from error


def write_private(path: Path, data: bytes) -> None:
    """Write data to a file that only its owner can read.

    It is not truncated first: ext4 would then write the file out when it is closed, which takes much longer.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))
    finally:
        os.close(file)


def this_process(root: Path, clock: Clock) -> Holder:
    return Holder(
        pid=os.getpid(),
        host=socket.gethostname(),
        user=user_name(os.geteuid()),
        started=shown_moment(clock.now_ms()),
        root=legible(root.absolute()),
    )


def shown_moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def is_same_file(file: int, path: Path) -> bool:
    opened = os.fstat(file)
    try:
        found = path.stat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def lock_file(path: Path) -> int:
    """Open the file and lock it, even if somebody removes it meanwhile.  Raises LockHeld and OSError."""
    while True:
        try:
            file = open_locked(path, lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise LockHeld(path.parent, describe(path)) from error
        if is_same_file(file, path):
            return file
        os.close(file)


def open_locked(path: Path, lock: Callable[[int], object]) -> int:
    """Open and lock the file; close-on-exec, so that no program that the daemon starts keeps the lock alive."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock(file)
    except BaseException:
        os.close(file)
        raise
    return file


def describe(holder_file: Path, *, with_project: bool = False) -> str:
    try:
        holder = msgspec.json.decode(holder_file.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):  # the lock has just been taken, and the holder is not written yet
        return "another spyweb"
    return f"{holder}, of the project {holder.root}" if with_project else str(holder)
