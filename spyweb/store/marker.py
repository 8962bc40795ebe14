"""A small file in the data directory that tells what the next start can't see otherwise: that there has been a
database, that its log alone holds writes, and whether whoever had it open has closed it.

It is written in place and never synced.  Where it is missing, unreadable or out of date, less is noticed, and nothing
is refused that is whole.
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

SAME_BOOT_MS = 60_000  # by how much two reckonings of one start of the machine may differ: its clock is set right


class Stamp(msgspec.Struct, frozen=True):
    """Tells one state of a file from another, also in a copy of it."""

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
    unmerged: Stamp | None = None  # the database file, while its log alone holds writes that came after it


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The knowledge of a database from before."""

    place: Path  # whose marker says so
    open: Opened | None = None
    unmerged: Stamp | None = None
    was_machine_down: bool = False  # since it was opened, as far as can be told


class Marker:
    """The marker of a data directory, as the database of this path has it."""

    def __init__(self, data_dir: Path, database: Path, clock: Clock) -> None:
        self.path = data_dir / MARKER
        self._data_dir = data_dir
        self._database = database
        self._clock = clock
        self._contents = Contents()
        self._turn = Lock()  # databases are opened on several threads

    def known(self) -> Known | None:
        """Return what is known of this database; None where nothing is."""
        found = self._read()
        if found is None or found.database not in ("", self._name()):
            return None
        return self._known(found)

    def known_user_db(self) -> Known | None:
        """Return the same of the database of the tables that scripts have made."""
        found = self._read()
        return self._known(replace(found, unmerged=None)) if found and found.user_db else None

    def _known(self, found: Contents) -> Known:
        opened = found.open
        was_down = opened is not None and abs(opened.booted_ms - self._booted_ms()) > SAME_BOOT_MS
        return Known(place=self._data_dir, open=opened, unmerged=found.unmerged, was_machine_down=was_down)

    def _booted_ms(self) -> int:
        return self._clock.now_ms() - uptime_ms()

    def note_opened(self) -> None:
        """Note that the database is there, and open from now on."""
        opened = Opened(pid=os.getpid(), since=shown_moment(self._clock.now_ms()), booted_ms=self._booted_ms())
        user_db = self.known_user_db() is not None
        with self._turn:
            self._contents = Contents(database=self._name(), user_db=user_db, open=opened)
            self._write()

    def note_user_db(self) -> None:
        self._change(user_db=True)

    def note_unmerged(self) -> None:
        """Note that from now on the log holds what the database file does not, as that is at this moment."""
        self._change(unmerged=stamp_of(self._database))

    def note_closed(self, *, is_merged: bool = True) -> None:
        """Note that the log is about to be merged and removed: from now on its absence tells nothing.

        Not so where it was cut off: it can't be merged, and the next start must not take it for an empty one.
        """
        self._change(open=None, unmerged=None if is_merged else self._contents.unmerged)

    def forget(self) -> None:
        """Remove the marker.  Raises OSError."""
        self.path.unlink(missing_ok=True)

    def _name(self) -> str:
        """Return the database's path from the data directory: the same when the whole project is moved."""
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
    """Return the time since the machine was started, sleep included.  Its boot id is hidden by the unit."""
    return clock_gettime_ns(CLOCK_BOOTTIME) // 1_000_000
