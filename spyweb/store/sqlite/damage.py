"""Find out that a database is missing or damaged, and move it aside."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from spyweb.clock import Clock, RealClock
from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.store.access import explain

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
    what = "is empty" if path.exists() else "is missing"
    if logged:
        raise StoreIncomplete(path, f"{what}, and {wal_of(path).name} beside it holds what was written", files_of(path))
    if known_in:
        raise StoreIncomplete(path, f"{what}, and {known_in} has had one", files_of(path))


def was_killed(path: Path) -> bool:
    """Return whether the last daemon left its log behind; must be asked before opening, which removes the log."""
    return size_of(wal_of(path)) > 0


def check(connection: sqlite3.Connection, path: Path, *, killed: bool) -> None:
    """Check the schema, which detects a file that is not a database, and the pages if that can be done quickly."""
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if size_of(path) > (CHECKED_AFTER_KILL_BYTES if killed else CHECKED_ALWAYS_BYTES):
        return
    result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if result != "ok":
        raise StoreCorrupt(path, " ".join(result.split()))


def move_aside(path: Path, rest: Collection[Path] | None = None, *, clock: Clock | None = None) -> Path:
    """Rename a database and its companions, or only those in `rest`, to names that still belong together.

    Return the name that the database has, or would have.
    """
    now_ms = (clock or RealClock()).now_ms()
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    aside = path.with_name(f"{path.name}.corrupt-{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z")
    try:
        for file, new in zip(files_of(path), files_of(aside), strict=True):
            if file.exists() and (rest is None or file in rest):
                os.replace(file, new)
    except OSError as error:
        raise explain(error, path) from error
    return aside


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
