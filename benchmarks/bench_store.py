"""Measure what the store costs, beside plain sqlite3 and plain aiosqlite in the same run.

    python -m benchmarks.bench_store [--quick] [--rounds N]

Each figure is the median over the rounds; in a round all candidates take turns, in changing order, on fresh files
in one directory.  Two traps: SQLite does not write at all when a value is what it was, and while a write-ahead log
grows for the first time a sync costs twice as much; so values change, and each log is grown before.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiosqlite
import uvloop

from benchmarks.place import describe_disk, folder
from benchmarks.table import read_effort
from spyweb.clock import RealClock
from spyweb.model import Cursor, Durability, JobId, Outcome, RunState, Trigger
from spyweb.store.marker import Marker
from spyweb.store.protocol import Change, End, NewRun
from spyweb.store.sqlite.store import SqliteStore, open_store

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


async def the_store(path: Path, durability: Durability) -> list[Result]:
    marker = Marker(path.parent, path, RealClock())  # as a daemon has one
    store = await open_store(path, clock=RealClock(), durability=durability, marker=marker)
    try:
        await store.values.set("", b"", GROWTH)
        return [*await entries(store), *await runs(store)]
    finally:
        await store.close()


async def entries(store: SqliteStore) -> list[Result]:
    async def write(caller: int, number: int) -> None:
        await store.values.set(f"job:{caller}", KEYS[number % 10], b"%020d" % number)

    async def alternate(caller: int, number: int) -> None:
        if number % 2:
            await store.values.get(f"job:{caller}", KEYS[number % 10])
        else:
            await write(caller, number)

    return [
        ("store, write, 1 caller", await share(1, 300, write)),
        ("store, write, 64 callers", await share(64, 60, write)),
        ("store, write/read, 1 caller", await share(1, 300, alternate)),
        ("store, write/read, 64 callers", await share(64, 60, alternate)),
    ]


async def runs(store: SqliteStore) -> list[Result]:
    async def run(caller: int, number: int) -> None:
        job = JobId(f"job{caller}")
        new = NewRun(
            job=job, state=RunState.RUNNING, trigger=Trigger(type="schedule"), due_ms=number, started_ms=number
        )
        claimed = await store.runs.record(
            Change(new=[new], cursors=[Cursor(job=job, due_ms=number, schedule="every 1s")])
        )
        if claimed[0] is not None:
            end = End(run=claimed[0], ended_ms=number + 1, outcome=Outcome.SUCCESS)
            await store.runs.record(Change(end=[end]))

    return [("store, claim and end of a run, 64 callers", await share(64, 20, run))]


async def measure(rounds: int, durability: Durability) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {}
    candidates = [plain_sqlite3, plain_aiosqlite, the_store]
    for number in range(rounds):
        with folder() as directory:
            for candidate in candidates[number % 3 :] + candidates[: number % 3]:
                for what, seconds in await candidate(directory / f"{candidate.__name__}.db", durability):
                    figures.setdefault(what, []).append(seconds)
    return figures


def show(durability: Durability, figures: dict[str, list[float]]) -> None:
    """Print the figures; the ratio says how many times as fast as sqlite3 committing each statement by itself."""
    medians = {what: statistics.median(seconds) for what, seconds in figures.items()}
    print(f"\nsynchronous = {durability.value.upper():38} us an op   against sqlite3")
    for what, seconds in sorted(medians.items()):
        peer = medians["sqlite3, write/read" if "write/read" in what else "sqlite3, write"]
        ratio = f"{peer / seconds:9.2f} x" if "claim" not in what else ""
        print(f"  {what:50} {seconds * 1e6:9.1f}   {ratio}")


def main() -> None:
    effort = read_effort(__doc__)
    print(describe_disk())
    for durability in Durability:
        show(durability, uvloop.run(measure(effort.rounds, durability)))


if __name__ == "__main__":
    main()
