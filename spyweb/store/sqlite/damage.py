"""Find out that a database is missing, damaged, moved or has lost commits, and move it aside.

What is written to a file that somebody has removed or replaced is lost with the process.  SQLite checks for that only
with a rollback journal (SQLITE_READONLY_DBMOVED), not in WAL mode.  If the log was cut off, it goes on writing after
the gap, and copies the gap into the database.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from spyweb.clock import RealClock
from spyweb.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreMoved
from spyweb.model import Durability
from spyweb.store.access import explain
from spyweb.store.lock import shown_moment
from spyweb.store.marker import LastCommit, Marker, Stamp, stamp_of

# A small file is checked every time; a larger one only after a kill, which is when a faulty disk shows.  Checking all
# pages of a larger file would delay the start for too long.
CHECKED_ALWAYS_BYTES = 16 << 20
CHECKED_AFTER_KILL_BYTES = 256 << 20


def refuse_missing(path: Path, known_in: Path | None = None) -> None:
    """Raise StoreIncomplete if a database is absent or empty, and its log is there or `known_in`, a folder, had one."""
    logged = size_of(wal_of(path))  # first: a process that is making a database writes to the database before its log
    if size_of(path):
        return
    try:
        what = "is empty" if path.exists() else "is missing"
    except OSError as error:
        raise explain(error, path) from error
    if logged:
        what = f"{what}, and {wal_of(path).name} beside it holds what was written"
        raise StoreIncomplete(path, what, is_gone=True)
    if known_in:
        raise StoreIncomplete(path, f"{what}, and {known_in} has had one", is_gone=True)


def was_killed(path: Path, marker: Marker | None = None) -> bool:
    """Return whether the last daemon did not close the database.  Ask before opening it: that removes the log."""
    return size_of(wal_of(path)) > 0 or bool(marker and marker.found and marker.found.open)


def check(connection: sqlite3.Connection, path: Path, *, killed: bool) -> None:
    """Check the schema, and the pages if that can be done quickly."""
    check_schema(connection)
    if size_of(path) <= (CHECKED_AFTER_KILL_BYTES if killed else CHECKED_ALWAYS_BYTES):
        check_pages(connection, path)


def check_pages(connection: sqlite3.Connection, path: Path) -> None:
    result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if result != "ok":
        raise StoreCorrupt(path, " ".join(result.split()))


def find_damage(path: Path) -> str:
    """Check every page of a database, without changing it; return what is damaged, empty where nothing is."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            check_pages(connection, path)
    except (sqlite3.Error, StoreCorrupt) as error:
        return str(error)
    return ""


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.Error, or what Python raises where a name is not UTF-8, if the file is not a database."""
    connection.execute("SELECT name, sql FROM sqlite_master").fetchall()


def find_loss(connection: sqlite3.Connection, path: Path, marker: Marker, durability: Durability) -> str:
    """Return which acknowledged commits the database does not hold, where that has a good reason; else empty.

    Raises StoreIncomplete where it has none.  It is one that the database was replaced with an older one, or that the
    machine went down before commits were synced.
    """
    last = marker.found.commit if marker.found else None
    held = find_last_commit(connection)
    if last is None or held.number >= last.number:
        return ""
    number = last.number - held.number
    after = f" after {shown_moment(held.at_ms)}" if held.at_ms else ""
    until = f", the last at {shown_moment(last.at_ms)}" if last.at_ms else ""
    lost = f"{number} commit{'s' * (number > 1)}{after}{until}"
    if durability is Durability.NORMAL and marker.was_machine_down:
        return f"{lost}: the machine went down before they were synced"
    logged = size_of(wal_of(path))
    if logged or last.file == stamp_of(path):
        what = "was cut off or is damaged" if logged else "was removed"
        raise StoreIncomplete(path, f"its log {wal_of(path).name} {what}, and with it {lost}", is_gone=False)
    return f"{lost}: an older database was put in its place"


def find_last_commit(connection: sqlite3.Connection, file: Stamp | None = None) -> LastCommit:
    """Return the commit that the database holds as its last; its number is 0 where none has been counted."""
    if not has_table(connection, "last_commit"):
        return LastCommit(0, 0, file)
    number, at_ms = connection.execute("SELECT max(number), max(at_ms) FROM last_commit").fetchone()
    return LastCommit(number or 0, at_ms or 0, file)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def move_aside(path: Path, aside: Path | None = None) -> Path:
    """Rename a database and its companions to names that still belong together; return the database's."""
    aside = aside or aside_of(path)
    try:
        for file, new in zip(files_of(path), files_of(aside), strict=True):
            if file.exists():
                os.replace(file, new)
    except OSError as error:
        raise explain(error, path) from error
    return aside


def copy_log_aside(path: Path) -> Path | None:
    """Copy the rest of a database's log; SQLite would drop the unreadable part."""
    if not size_of(wal_of(path)):
        return None
    try:
        return Path(shutil.copy2(wal_of(path), wal_of(aside_of(path))))
    except OSError as error:
        raise explain(error, path) from error


def aside_of(path: Path) -> Path:
    return path.with_name(path.name + dated_ending("corrupt"))


def dated_ending(why: str) -> str:
    """Return what is appended to the name of a database that is moved aside now."""
    now_ms = RealClock().now_ms()
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return f".{why}-{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z"


def files_of(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of a database, its write-ahead log and the index of that log."""
    return path, wal_of(path), path.with_name(f"{path.name}-shm")


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # absent or not accessible: opening it will report that
        return 0


HEAD = struct.Struct("=HI")  # size of a page, and how many the log holds (mxFrame), as the machine writes them
AT = 14
LOG_HEADER, FRAME_HEADER = 32, 24  # bytes


class FileIdentity:
    """Remembers the files that were opened: a database, and its log if the file system supports one.

    With `reads_index` also the index of the log, its -shm file (sqlite.org/walformat.html), is opened: close this after
    the connections, since that releases their locks.  Raises NoAccess or StoreError where the database can't be read.
    """

    def __init__(self, path: Path, *, reads_index: bool = False) -> None:
        self._path = path
        self._log = str(wal_of(path))
        self._log_size = size_of(wal_of(path))
        files = [path, *filter(Path.exists, [wal_of(path)])]
        try:
            self._opened = {str(file): os.stat(file) for file in files}
        except OSError as error:
            raise explain(error, path) from error
        self.stamp = stamp_of(path)  # of the database, at the last check
        self._index = -1  # there is none when SQLite keeps it in memory
        if reads_index:
            with suppress(OSError):
                self._index = os.open(files_of(path)[2], os.O_RDONLY | os.O_CLOEXEC)

    def trouble(self) -> StoreError | None:
        """Return an error if the opened files were replaced.  Any thread may call this."""
        for file, opened in self._opened.items():
            try:
                found = os.stat(file)
            except (FileNotFoundError, NotADirectoryError):
                return StoreMoved(file)
            except OSError:  # not accessible, which proves nothing: SQLite has it open
                continue
            if not os.path.samestat(found, opened):
                return StoreMoved(file)
            if file != self._log:
                self.stamp = Stamp(found.st_size, found.st_mtime_ns)
            elif found.st_size < self._log_size and self._is_cut_off():
                return StoreCorrupt(self._path, f"{Path(file).name} was cut off while it was open")
            else:
                self._log_size = found.st_size
        return None

    def _is_cut_off(self) -> bool:
        """Return whether the log is too short, looking twice: another program may restart the log in between."""
        page_size, pages = before = self._read_index()
        frame = FRAME_HEADER + (65_536 if page_size == 1 else page_size)
        return pages > 0 and size_of(Path(self._log)) < LOG_HEADER + pages * frame and before == self._read_index()

    def pages(self) -> int:
        """Return how many pages are in the log; 0 if that is unknown."""
        return self._read_index()[1]

    def _read_index(self) -> tuple[int, int]:
        with suppress(OSError, struct.error):  # also where there is none
            page_size, pages = HEAD.unpack(os.pread(self._index, HEAD.size, AT))
            return page_size, pages
        return 0, 0

    def close(self) -> None:
        if self._index >= 0:
            os.close(self._index)
            self._index = -1
