"""Finding out that a database is damaged, and putting it aside."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from spyweb.clock import Clock, RealClock
from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.store.access import explain

# A small file is looked at every time; after a kill, which is when a disk that lies shows, a large one too.
# Looking at all pages takes 3 ms a MiB: at most 50 ms, after a kill 0.8 s.
CHECKED_ALWAYS_BYTES = 16 << 20
CHECKED_AFTER_KILL_BYTES = 256 << 20


def refuse_missing(path: Path, known_in: Path | None = None) -> None:
    """Raise StoreIncomplete where a database is absent or empty and should not be.  Opens no file.

    `known_in`: a data directory that has had one.
    """
    logged = size_of(wal_of(path))  # first: whoever makes a database just now writes to that before its log
    if size_of(path):
        return
    what = "is empty" if path.exists() else "is missing"
    if logged:
        raise StoreIncomplete(path, f"{what}, and {wal_of(path).name} beside it holds what was written", files_of(path))
    if known_in:
        raise StoreIncomplete(path, f"{what}, and {known_in} has had one", files_of(path))


def was_killed(path: Path) -> bool:
    """Return whether the last daemon left its log behind; ask before the database is opened, which tidies up."""
    return size_of(wal_of(path)) > 0


def check(connection: sqlite3.Connection, path: Path, *, killed: bool) -> None:
    """Read the schema, which finds a file that is no database, and as many pages as can be checked quickly."""
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if size_of(path) > (CHECKED_AFTER_KILL_BYTES if killed else CHECKED_ALWAYS_BYTES):
        return
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise StoreCorrupt(path, " ".join(verdict.split()))


def move_aside(path: Path, rest: Collection[Path] | None = None, *, clock: Clock | None = None) -> Path:
    """Rename a database and its companions, or only those in `rest`, under names that still belong together.

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
    """Return a database with its write-ahead log and the index of that."""
    return path, wal_of(path), index_of(path)


def index_of(path: Path) -> Path:
    """Return the path of the log's index."""
    return path.with_name(f"{path.name}-shm")


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # absent, or out of sight: opening it will say so
        return 0
