"""Keeps a small file in the data directory with facts for the next start.

It says that there has been a database, that only the database's log holds some writes, and whether the last process
closed it.  It is written in place and never synced.  If it is missing, unreadable or out of date, less damage is
noticed, but no sound database is refused.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import CLOCK_BOOTTIME, clock_gettime_ns

import msgspec
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.settings.sections import MARKER
from spyweb.store.lock import shown_moment, write_private

SAME_BOOT_MS = 60_000  # how far two computed times of one boot may differ: the clock may be adjusted in between


class Stamp(msgspec.Struct, frozen=True):
    """A fingerprint that distinguishes one state of a file from another, even in a copy."""

    size: int
    mtime_ns: int


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The process that has the database open."""

    pid: int
    since: str
    booted_ms: int  # when the machine had been started


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    database: str = ""  # its path from the data directory; empty: the file could not be read
    user_db: bool = False  # whether scripts have made tables of their own
    open: Opened | None = None
    unmerged: Stamp | None = None  # of the database file, while only its log holds the writes that came after


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a database that an earlier process has noted."""

    place: Path  # the data directory whose marker says so
    open: Opened | None = None
    unmerged: Stamp | None = None
    was_machine_down: bool = False  # since it was opened, as far as is known


class Marker:
    """The marker file of a data directory, as it applies to the database at this path."""

    def __init__(self, data_dir: Path, database: Path, clock: Clock) -> None:
        self.path = data_dir / MARKER
        self._data_dir = data_dir
        self._database = database
        self._clock = clock
        self._contents = Contents()
        self._turn = Lock()  # databases are opened on several threads

    def known(self) -> Known | None:
        """Return what an earlier process has noted about this database, or None."""
        found = self._read()
        if found is None or found.database not in ("", self._name()):
            return None
        return self._known(found)

    def known_user_db(self) -> Known | None:
        """Return what an earlier process has noted about the database of the scripts' own tables, or None."""
        found = self._read()
        return self._known(replace(found, unmerged=None)) if found and found.user_db else None

    def _known(self, found: Contents) -> Known:
        opened = found.open
        was_down = opened is not None and abs(opened.booted_ms - self._booted_ms()) > SAME_BOOT_MS
        return Known(place=self._data_dir, open=opened, unmerged=found.unmerged, was_machine_down=was_down)

    def _booted_ms(self) -> int:
        return self._clock.now_ms() - uptime_ms()

    def note_opened(self) -> None:
        """Note that the database exists and is open from now on."""
        opened = Opened(pid=os.getpid(), since=shown_moment(self._clock.now_ms()), booted_ms=self._booted_ms())
        user_db = self.known_user_db() is not None
        with self._turn:
            self._contents = Contents(database=self._name(), user_db=user_db, open=opened)
            self._write()

    def note_user_db(self) -> None:
        self._change(user_db=True)

    def note_unmerged(self) -> None:
        """Note that from now on the log holds writes that the database file, in its present state, does not have."""
        self._change(unmerged=stamp_of(self._database))

    def note_closed(self, *, is_merged: bool = True) -> None:
        """Note that the log is about to be merged and removed, so that its absence will mean nothing.

        With `is_merged=False` the log was cut off: it can't be merged, and the next start must not take it for empty.
        """
        self._change(open=None, unmerged=None if is_merged else self._contents.unmerged)

    def forget(self) -> None:
        """Remove the marker.  Raises OSError."""
        self.path.unlink(missing_ok=True)

    def _name(self) -> str:
        """Return the database's path relative to the data directory, so that the project may be moved."""
        return os.path.relpath(self._database, self._data_dir)

    def _read(self) -> Contents | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Contents)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError):
            return Contents()

    def _change(self, **fields: object) -> None:
        with self._turn:
            self._contents = replace(self._contents, **fields)
            self._write()

    def _write(self) -> None:
        """Write the marker, if possible: a full disk must not keep the daemon from going on."""
        with suppress(OSError):
            write_private(self.path, msgspec.json.encode(self._contents) + b"\n")


def stamp_of(file: Path) -> Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns)


def uptime_ms() -> int:
    """Return the time since the machine was started, sleep included.  The unit hides the boot id."""
    return clock_gettime_ns(CLOCK_BOOTTIME) // 1_000_000
