"""Find out that a database is missing, damaged or has lost commits, and move it aside."""

from __future__ import annotations

import os
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from spyweb.clock import Clock, RealClock
from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.model import Durability
from spyweb.store.access import explain
from spyweb.store.lock import shown_moment
from spyweb.store.marker import Marker, stamp_of
from spyweb.store.sqlite.committer import find_last_commit

# A small file is checked every time; a larger one only after a kill, which is when a faulty disk shows.  Checking all
# pages of a larger file would delay the start for too long.
CHECKED_ALWAYS_BYTES = 16 << 20
CHECKED_AFTER_KILL_BYTES = 256 << 20


def refuse_missing(path: Path, known_in: Path | None = None) -> None:
    """Raise StoreIncomplete if a database is absent or empty and should not be.  Opens no file.

    `known_in`: a data directory that has had one.
    """
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
    if size_of(path) > (CHECKED_AFTER_KILL_BYTES if killed else CHECKED_ALWAYS_BYTES):
        return
    result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if result != "ok":
        raise StoreCorrupt(path, " ".join(result.split()))


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.Error if the file is not a database.

    Python raises it too, where a name is not UTF-8: SQLite would take that for another table's.
    """
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
        what = "was cut off or is damaged" if logged else "is gone"
        raise StoreIncomplete(path, f"its log {wal_of(path).name} {what}, and with it {lost}", is_gone=False)
    return f"{lost}: an older database was put in its place"


def move_aside(path: Path, *, clock: Clock | None = None) -> Path:
    """Rename a database and its companions to names that still belong together; return the database's."""
    aside = aside_of(path, clock)
    try:
        for file, new in zip(files_of(path), files_of(aside), strict=True):
            if file.exists():
                os.replace(file, new)
    except OSError as error:
        raise explain(error, path) from error
    return aside


def copy_log_aside(path: Path, *, clock: Clock | None = None) -> Path | None:
    """Copy what is left of a database's log, of which SQLite drops what it can't read."""
    if not size_of(wal_of(path)):
        return None
    try:
        return Path(shutil.copy2(wal_of(path), wal_of(aside_of(path, clock))))
    except OSError as error:
        raise explain(error, path) from error


def aside_of(path: Path, clock: Clock | None) -> Path:
    now_ms = (clock or RealClock()).now_ms()
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return path.with_name(f"{path.name}.corrupt-{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z")


def files_of(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of a database, its write-ahead log and the index of that log."""
    return path, wal_of(path), index_of(path)


def index_of(path: Path) -> Path:
    """Return the path of the log's index."""
    return path.with_name(f"{path.name}-shm")


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # absent or not accessible: opening it will report that
        return 0
