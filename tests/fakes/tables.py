"""A table of numbers to write to, for tests of what lies between an op and SQLite."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

PATIENCE = 20  # seconds: a test that hangs fails by itself


def make_table(path: Path) -> sqlite3.Connection:
    """Numbers below 1000, one of each."""
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


class Gate:
    """An op that holds its batch, and the thread of its connection, until it is opened."""

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
