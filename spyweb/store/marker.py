"""Keeps a small file in the data directory with facts for the next start.

It says that there has been a database, whether the last process closed it, and which commit was acknowledged last.  It
is written in place with each commit and never synced: it outlives a killed process, and after a power failure it may be
older than the database, never newer than what was synced.  If it is missing, unreadable or out of date, less damage is
noticed, but no sound database is refused.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import CLOCK_BOOTTIME, clock_gettime_ns

import msgspec

from spyweb.clock import Clock
from spyweb.settings.sections import MARKER
from spyweb.store.lock import shown_moment

SAME_BOOT_MS = 60_000  # how far two computed times of one boot may differ: the clock may be adjusted in between
LEAST_SIZE = 512  # bytes: padded, so that a write never changes the file's size


class Stamp(msgspec.Struct, frozen=True):
    """A fingerprint that distinguishes one state of a file from another, even in a copy."""

    size: int
    mtime_ns: int


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The process that has the database open."""

    pid: int
    since: str
    booted_ms: int  # when the machine had been started


class LastCommit(msgspec.Struct, frozen=True):
    """The commit that was acknowledged last."""

    number: int
    at_ms: int
    file: Stamp | None = None  # the database file, just before: what came after its last checkpoint is only in the log


class Contents(msgspec.Struct, kw_only=True):
    database: str = ""  # its path from the data directory; empty: the file could not be read
    user_db: bool = False  # whether scripts have made tables of their own
    open: Opened | None = None
    commit: LastCommit | None = None


class Marker:
    """The marker file of a data directory, as it applies to the database at this path."""

    def __init__(self, data_dir: Path, database: Path, clock: Clock) -> None:
        self.folder = data_dir
        self._path = data_dir / MARKER
        self._name = os.path.relpath(database, data_dir)  # so that the project may be moved
        self._clock = clock
        try:
            self._contents: Contents | None = msgspec.json.decode(self._path.read_bytes(), type=Contents)
        except FileNotFoundError:
            self._contents = None
        except (OSError, msgspec.DecodeError):
            self._contents = Contents()
        self._file = -1  # open as long as the database is
        self._size = LEAST_SIZE
        self._turn = Lock()  # the writer's thread notes commits

    @property
    def found(self) -> Contents | None:
        found = self._contents
        return found if found and found.database in ("", self._name) else None

    @property
    def has_user_db(self) -> bool:
        return self._contents is not None and self._contents.user_db

    @property
    def was_machine_down(self) -> bool:
        """Return whether the machine was started anew since the database was opened, as far as is known."""
        opened = self.found.open if self.found else None
        return opened is not None and abs(opened.booted_ms - self._booted_ms()) > SAME_BOOT_MS

    def _booted_ms(self) -> int:
        return self._clock.now_ms() - uptime_ms()

    def note_opened(self, commit: LastCommit | None) -> None:
        """Note that the database is open from now on, and which commit is its last, where that is counted."""
        opened = Opened(pid=os.getpid(), since=shown_moment(self._clock.now_ms()), booted_ms=self._booted_ms())
        with self._turn, suppress(OSError):
            self._contents = Contents(database=self._name, user_db=self.has_user_db, open=opened, commit=commit)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._size = max(LEAST_SIZE, os.fstat(self._file).st_size, 2 * len(msgspec.json.encode(self._contents)))
        self._note()

    def note_user_db(self) -> None:
        self._note(user_db=True)

    def note_commit(self, commit: LastCommit) -> None:
        self._note(commit=commit)

    def note_closed(self) -> None:
        self._note(open=None)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def forget(self) -> None:
        """Remove the marker.  Raises OSError."""
        self._path.unlink(missing_ok=True)
        self._contents = None

    def _note(self, **facts: object) -> None:
        """Write facts into the marker, if possible: a full disk must not keep the daemon from going on."""
        with self._turn, suppress(OSError):  # also that of no file
            for name, fact in facts.items():
                setattr(self._contents, name, fact)
            os.pwrite(self._file, msgspec.json.encode(self._contents).ljust(self._size), 0)


def stamp_of(file: Path) -> Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns)


def uptime_ms() -> int:
    """Return the time since the machine was started, sleep included.  The unit hides the boot id."""
    return clock_gettime_ns(CLOCK_BOOTTIME) // 1_000_000
