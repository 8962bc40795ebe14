"""Make tables of numbers, for tests of what lies between an op and SQLite; and connections that crash or wait."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

PATIENCE = 20  # seconds: a test that hangs fails by itself


def make_table(path: Path) -> sqlite3.Connection:
    """Make a table of numbers below 1000, each unique."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE number (value INTEGER PRIMARY KEY CHECK (value < 1000), filler BLOB)")
    return connection


def put(connection: sqlite3.Connection, value: int, filler: int = 0) -> int:
    connection.execute("INSERT INTO number VALUES (?, zeroblob(?))", (value, filler))
    return value


def put_all(connection: sqlite3.Connection, *values: int) -> int:
    return sum(put(connection, value) for value in values)


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [value for (value,) in connection.execute("SELECT value FROM number ORDER BY value")]


class Crash(Exception):
    """Here the process would be gone."""


class CrashingConnection(sqlite3.Connection):
    """Raises Crash before the statement at which its fuse has burnt down."""

    fuse: int | None = None

    def _burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise Crash

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._burn()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._burn()
        return super().executemany(*arguments)


def files_beside(folder: Path) -> dict[str, bytes]:
    """Return the contents of a database, its log and what else lies there, but for what SQLite makes anew."""
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if not file.name.endswith(("-shm", "-lock")) and file.stat().st_size
    }


class Gate:
    """Holds a batch, and the thread of its connection, by an op that ends when the gate is opened."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._opened = threading.Event()

    def hold(self, connection: sqlite3.Connection) -> None:
        self._entered.set()
        assert self._opened.wait(PATIENCE)

    def wait_until_entered(self) -> None:
        assert self._entered.wait(PATIENCE)

    def open(self) -> None:
        self._opened.set()
