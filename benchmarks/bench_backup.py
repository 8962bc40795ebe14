"""Measure what a backup of a database in use holds up, and how long it takes.

The longest pause of the event loop and the longest increment while a backup is made in a thread of the same process, as
by `[backup]`, and for as long without one, since a disk has long syncs of its own.  The time of a backup, checked and
packed, beside that of a plain copy by Python's `backup()` and by the program `sqlite3`, where there is one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.bench_state import increment
from benchmarks.place import folder
from benchmarks.table import Effort, Row, percentile, read_effort, show
from spyweb.clock import RealClock
from spyweb.settings.load import load_settings
from spyweb.settings.sections import Settings
from spyweb.store.sqlite.backup import make_backup
from spyweb.store.sqlite.store import Store, connect, open_store

MEGABYTES, QUICK_MEGABYTES = 1_000, 20
VALUE = 3_600  # bytes: a row a page
TICK_S = 0.002
PAUSE_S = 0.002  # between two increments: a busy daemon, not one that does nothing else


class Held(NamedTuple):
    """What was held up, in seconds each."""

    pauses: list[float]
    increments: list[float]


def fill(path: Path, megabytes: int) -> None:
    with closing(connect(path)) as connection:
        connection.execute("BEGIN")
        rows = ((f"row{number}".encode(), os.urandom(VALUE)) for number in range(megabytes * 1_000_000 // 4096))
        connection.executemany(
            "INSERT INTO entry (namespace, key, type, value, version, created_ms, updated_ms)"
            " VALUES ('filler', ?, 'string', ?, 1, 0, 0)",
            rows,
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def held_during(store: Store, work: Awaitable[object]) -> Held:
    held, is_over = Held([], []), False

    async def tick() -> None:
        while not is_over:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            held.pauses.append(time.perf_counter() - began - TICK_S)

    async def write() -> None:
        while not is_over:
            began = time.perf_counter()
            await store.values.transform("other", b"k", increment)
            held.increments.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_S)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(tick())
        tasks.create_task(write())
        await work
        is_over = True
    return held


def ignore(count: int) -> None:
    pass


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def copy_plainly(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    target.unlink()


def copy_by_program(source: Path, target: Path) -> None:
    subprocess.run(["sqlite3", str(source), f".backup '{target}'"], check=True)
    target.unlink()


async def measure(root: Path, effort: Effort) -> list[Row]:
    megabytes = effort.of(MEGABYTES, QUICK_MEGABYTES)
    settings = load_settings(root, environ={}, flags={})
    path, file, copy = settings.store.path, root / "backup.zip", root / "copy.db"
    path.parent.mkdir()
    await (await open_store(path, clock=RealClock())).close()
    fill(path, megabytes)

    during, without, ours, plain, program = [], [], [], [], []
    store = await open_store(path, clock=RealClock())
    for _ in range(effort.rounds):
        began = time.perf_counter()
        during.append(await held_during(store, back_up(file, settings)))
        without.append(await held_during(store, asyncio.sleep(time.perf_counter() - began)))
        file.unlink()
    await store.close()
    for _ in range(effort.rounds):
        ours.append(timed(lambda: make_backup(file, settings, None, RealClock(), ignore, ignore)))
        file.unlink()
        plain.append(timed(lambda: copy_plainly(path, copy)))
        if shutil.which("sqlite3"):
            program.append(timed(lambda: copy_by_program(path, copy)))

    what = f"during a backup of {megabytes:,} MB"
    rows = [
        row(f"pause of the loop {what}, longest", during, without, lambda held: max(held.pauses), limit=50),
        row(f"increment {what}, longest", during, without, lambda held: max(held.increments), limit=50),
        row(f"increment {what}, p99", during, without, lambda held: percentile(held.increments, 0.99)),
    ]
    for peer, theirs in (("Python's backup(), which checks nothing", plain), ("sqlite3 .backup", program)):
        if theirs:
            mine, copied = statistics.median(ours), statistics.median(theirs)
            figure = f"backup of {megabytes:,} MB, {megabytes / mine:,.0f} MB/s"
            rows.append(Row(figure=figure, ours=mine, unit="s", peer=peer, theirs=copied))
    return rows


async def back_up(file: Path, settings: Settings) -> None:
    await asyncio.to_thread(make_backup, file, settings, None, RealClock(), ignore, ignore)


def row(
    figure: str, during: list[Held], without: list[Held], of: Callable[[Held], float], limit: float | None = None
) -> Row:
    ours, theirs = (statistics.median(of(held) * 1e3 for held in each) for each in (during, without))
    return Row(figure=figure, ours=ours, unit="ms", peer="without one", theirs=theirs, limit=limit)


async def main(effort: Effort) -> None:
    with folder() as root:
        show("backup", effort, await measure(root, effort))


if __name__ == "__main__":
    uvloop.run(main(read_effort(__doc__)))
