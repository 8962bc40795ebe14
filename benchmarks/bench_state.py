"""Measure what an increment of typed state waits for while expired keys are swept, in the store.

The longest and the median time that an increment takes while 100,000 expired keys are swept, and for as long without a
sweep, since a disk has long syncs of its own; and the same where commits are not synced.  Each figure is the median
over the rounds, on fresh files.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from pathlib import Path
from typing import TypeVar

import uvloop

from benchmarks.place import folder
from benchmarks.table import Effort, Row, read_effort, show
from spyweb.clock import RealClock
from spyweb.model import Durability
from spyweb.store.model.entries import KEEP, Entry, PortableEntry, Put
from spyweb.store.sqlite.store import Store, open_store

FEW, MANY = 1_000, 1_000_000
QUICK_MANY = 4_000
LOADED_AT_ONCE = 20_000
EXPIRING = 100_000
QUICK_EXPIRING = 2_000
NAMESPACE = "state"

Seconds = float
T = TypeVar("T")


def increment(entry: Entry | None) -> Put:
    before = entry.value if entry else 0
    assert isinstance(before, int)
    return Put(before + 1, KEEP, before + 1)


async def opened(path: Path, durability: Durability) -> Store:
    return await open_store(path, clock=RealClock(), durability=durability)


async def fill(store: Store, count: int) -> None:
    now_ms, dice = RealClock().now_ms(), random.Random(3)
    keys = random.Random(1).sample(range(count), count)  # as scripts would come by them, not in their order
    for start in range(0, count, LOADED_AT_ONCE):
        some = [
            PortableEntry(namespace=NAMESPACE, key=key_name(key), entry=entry_as_set(dice, now_ms))
            for key in keys[start : start + LOADED_AT_ONCE]
        ]
        await store.values.load(some, replace=True)


def entry_as_set(dice: random.Random, now_ms: int) -> Entry:
    """Make an entry as large as `set` leaves it: one that grows with its first write would split pages."""
    return Entry(value=dice.getrandbits(40), version=1, created_ms=now_ms, updated_ms=now_ms)


def key_name(number: int) -> bytes:
    return b"user:%08d:visits" % number


async def sweeps(directory: Path, effort: Effort) -> list[Row]:
    """Measure sweeps beside the same writes without one: each disk has moments in which a sync takes long."""
    rows = []
    for durability in (Durability.FULL, Durability.NORMAL):
        longest, middle = [], []
        for number in range(effort.rounds):
            both = await sweep(directory / f"sweep{durability.value}{number}.db", durability, effort)
            longest.append([max(times) * 1e3 for times in both])
            middle.append([statistics.median(times) * 1e3 for times in both])
        for name, found, limit in (("longest", longest, 50), ("median", middle, None)):
            ours, theirs = map(statistics.median, zip(*found, strict=True))
            what = f"increment during a sweep of {effort.of(EXPIRING, QUICK_EXPIRING):,}, {durability.value}, {name}"
            rows.append(Row(figure=what, ours=ours, unit="ms", peer="without a sweep", theirs=theirs, limit=limit))
    return rows


async def sweep(path: Path, durability: Durability, effort: Effort) -> tuple[list[Seconds], list[Seconds]]:
    """Return what increments take during a sweep, and then for as long without."""
    store = await opened(path, durability)
    count = effort.of(EXPIRING, QUICK_EXPIRING)
    lasts_ms = effort.of(5000, 200)
    expired = Entry(value=b"x" * 50, version=1, created_ms=0, updated_ms=0, expires_ms=RealClock().now_ms() + lasts_ms)
    keys = random.Random(2).sample(range(count), count)
    for start in range(0, count, LOADED_AT_ONCE):
        some = [
            PortableEntry(namespace=NAMESPACE, key=key_name(key), entry=expired)
            for key in keys[start : start + LOADED_AT_ONCE]
        ]
        await store.values.load(some, replace=True)
    await asyncio.sleep(expired_after_s(expired))
    during = await increments_during(store, asyncio.ensure_future(store.values.sweep()))
    without = await increments_during(store, asyncio.ensure_future(asyncio.sleep(sum(during))))
    await store.close()
    return during, without


async def increments_during(store: Store, under_way: asyncio.Future[T]) -> list[Seconds]:
    times: list[Seconds] = []
    while not under_way.done() or not times:
        asked = time.perf_counter()
        await store.values.transform("other", b"k", increment)
        times.append(time.perf_counter() - asked)
    await under_way
    return times


def expired_after_s(entry: Entry) -> Seconds:
    return max((entry.expires_ms or 0) - RealClock().now_ms() + 1, 0) / 1000


async def main(effort: Effort) -> None:
    with folder() as directory:
        rows = await sweeps(directory, effort)
    show("typed state in the store", effort, rows)


if __name__ == "__main__":
    uvloop.run(main(read_effort(__doc__)))
