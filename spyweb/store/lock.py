"""One daemon per data directory: a file lock, which the system lets go of when its holder dies, however it dies.

The file says who holds it.  It is never removed: two daemons could then hold a lock each, on two files of one name.
"""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from spyweb.clock import Clock, RealClock
from spyweb.errors import LockHeld, legible
from spyweb.settings.sections import LOCK_NAME
from spyweb.store.access import explain, make_private, user_name


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock, as its file says."""

    pid: int
    host: str
    user: str
    started: str
    root: str

    def __str__(self) -> str:
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"pid {self.pid} ({self.user}){where} since {self.started}"


class Lock:
    """Held from its making until it is released, or its process ends."""

    def __init__(self, path: Path, holder: Holder) -> None:
        self._file: int | None = open_locked(path)
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(holder) + b"\n", 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Releasing twice is harmless."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold_lock(data_dir: Path, *, root: Path | None = None, clock: Clock | None = None) -> Lock:
    """Take the data directory, made if it is absent and private in any case.

    Raises LockHeld with who has it, and NoAccess with whose it is.
    """
    started = datetime.fromtimestamp((clock or RealClock()).now_ms() // 1000, UTC).isoformat()
    holder = Holder(
        pid=os.getpid(),
        host=socket.gethostname(),
        user=user_name(os.geteuid()),
        started=started.replace("+00:00", "Z"),
        root=legible((root or data_dir.parent).absolute()),
    )
    try:
        make_private(data_dir)
        return Lock(data_dir / LOCK_NAME, holder)
    except OSError as error:
        raise explain(error, data_dir) from error


def open_locked(path: Path) -> int:
    """The file's descriptor is close-on-exec, so no program that the daemon starts keeps the lock alive."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        told = os.pread(file, 4096, 0)
        os.close(file)
        raise LockHeld(path, describe(told)) from error
    except BaseException:
        os.close(file)
        raise
    return file


def describe(told: bytes) -> str:
    try:
        return str(msgspec.json.decode(told, type=Holder))
    except msgspec.DecodeError:  # it has only just been taken
        return "another spyweb"
