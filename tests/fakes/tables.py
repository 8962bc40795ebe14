"""Make tables to write to: of numbers, for tests of what lies between an op and SQLite, and the store's own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from spyweb.store.sqlite.batch import Op, OpKind, commit

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


Entry = tuple[str, bytes, str, object, int | None]  # namespace, key, type, value, expires_ms


def committed(
    connection: sqlite3.Connection, kind: OpKind, function: Callable[..., object], asked: Sequence[tuple[object, ...]]
) -> list[object]:
    """Execute ops of one function in one batch; return the results, or what they failed with."""
    loop = asyncio.new_event_loop()
    batch = [Op(kind, function, arguments, loop.create_future(), None) for arguments in asked]
    loop.close()
    return commit(connection, batch)


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
