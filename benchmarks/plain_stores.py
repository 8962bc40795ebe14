"""Do what the store does with plain sqlite3 and plain aiosqlite, on a file of its own.

Two traps: SQLite does not write at all when a value is what it was, and while a write-ahead log grows for the first
time a sync costs twice as much; so values change, and each log is grown before.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiosqlite

from spyweb.model import Durability

TABLE = "CREATE TABLE entry (namespace, key, value, PRIMARY KEY (namespace, key))"
SET = "INSERT INTO entry VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
GET = "SELECT value FROM entry WHERE namespace = ? AND key = ?"
KEYS = [b"k%d" % number for number in range(10)]
GROWTH = bytes(20 << 20)  # more than the log holds between two checkpoints

Result = tuple[str, float]  # what, seconds an op


async def plain_sqlite3(path: Path, durability: Durability) -> list[Result]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {durability.value}")
    connection.execute(TABLE)
    connection.execute(SET, ("", b"", GROWTH))
    count = 600 if durability is Durability.FULL else 6000

    def write(number: int) -> None:
        connection.execute(SET, ("job:a", KEYS[number % 10], b"%020d" % number))

    def alternate(number: int) -> None:
        if number % 2:
            connection.execute(GET, ("job:a", KEYS[number % 10])).fetchone()
        else:
            write(number)

    results = [("sqlite3, write", repeat(write, count)), ("sqlite3, write/read", repeat(alternate, count))]
    connection.close()
    return results


def repeat(step: Callable[[int], None], count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        step(number)
    return (time.perf_counter() - began) / count


async def plain_aiosqlite(path: Path, durability: Durability) -> list[Result]:
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        await connection.execute("PRAGMA journal_mode = WAL")
        await connection.execute(f"PRAGMA synchronous = {durability.value}")
        await connection.execute(TABLE)
        await connection.execute(SET, ("", b"", GROWTH))

        async def alternate(caller: int, number: int) -> None:
            key = (f"job:{caller}", KEYS[number // 2 % 10])
            if number % 2:
                await connection.execute_fetchall(GET, key)
            else:
                await connection.execute(SET, (*key, b"%020d" % number))

        await share(64, 2, alternate)
        return [
            ("aiosqlite, write/read, 1 caller", await share(1, 600, alternate)),
            ("aiosqlite, write/read, 64 callers", await share(64, 120, alternate)),
        ]


async def share(callers: int, each: int, step: Callable[[int, int], Awaitable[None]]) -> float:
    """Return the seconds an op takes, of that many callers that each do one thing after the other."""

    async def caller(name: int) -> None:
        for number in range(each):
            await step(name, number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for name in range(callers):
            tasks.create_task(caller(name))
    return (time.perf_counter() - began) / (callers * each)
