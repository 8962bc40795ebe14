"""Measure what typed state costs in the store, beside plain sqlite3 in the same run.

    python -m benchmarks.bench_state [--quick] [--rounds N]

1. A counter: 64 callers that each add to a counter of their own, or all to one, against plain sqlite3 that commits
   each of its `INSERT … ON CONFLICT DO UPDATE … RETURNING`; both with every commit synced.
2. Size: an increment, a set and a get of a random key among 1,000 and among 1,000,000; and of one of 64 keys that
   are in use among so many.  A write of a random key among very many is the worst case: it writes a page of its own.
3. Sweep: the longest and the median time that an increment takes while 100,000 expired keys are swept, and for as long
   without a sweep, since a disk has long syncs of its own; and the same where commits are not synced.

Each figure is the median over the rounds, on fresh files in one directory; candidates take turns.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import uvloop

from benchmarks.place import folder
from benchmarks.plain_stores import GROWTH
from benchmarks.table import Effort, Row, read_effort, show
from spyweb.clock import RealClock
from spyweb.model import Durability
from spyweb.store.model.entries import KEEP, Entry, PortableEntry, Put
from spyweb.store.sqlite.store import Store, open_store

CALLERS = 64
COUNT = 20_000
QUICK_COUNT = 640
PLAIN_COUNT = 1_500
FEW, MANY = 1_000, 1_000_000
QUICK_MANY = 4_000
LOADED_AT_ONCE = 20_000
EXPIRING = 100_000
QUICK_EXPIRING = 2_000
NAMESPACE = "state"

TABLE = "CREATE TABLE entry (namespace TEXT, key BLOB, value, PRIMARY KEY (namespace, key))"
ADD = """
    INSERT INTO entry VALUES (?, ?, 1) ON CONFLICT (namespace, key) DO UPDATE SET value = value + 1 RETURNING value
"""

Seconds = float
T = TypeVar("T")


def increment(entry: Entry | None) -> Put:
    before = entry.value if entry else 0
    assert isinstance(before, int)
    return Put(before + 1, KEEP, before + 1)


def plain_increments(path: Path, key_of: Callable[[int], bytes]) -> Seconds:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    connection.execute("INSERT INTO entry VALUES ('', x'', ?)", (GROWTH,))
    began = time.perf_counter()
    for number in range(PLAIN_COUNT):
        connection.execute(ADD, (NAMESPACE, key_of(number))).fetchone()
    taken = (time.perf_counter() - began) / PLAIN_COUNT
    connection.close()
    return taken


async def spyweb_increments(path: Path, key_of: Callable[[int], bytes], count: int) -> Seconds:
    store = await opened(path)
    await store.values.transform("", b"", lambda entry: Put(GROWTH))
    taken = await drive(lambda number: store.values.transform(NAMESPACE, key_of(number), increment), count)
    counted = [entry.value for _, entry in await store.values.gather(NAMESPACE, b"", list)]
    assert sum(value for value in counted if isinstance(value, int)) == count
    await store.close()
    return taken


async def opened(path: Path, durability: Durability = Durability.FULL) -> Store:
    return await open_store(path, clock=RealClock(), durability=durability)


async def drive(ask: Callable[[int], Awaitable[object]], count: int) -> Seconds:
    """Return the time of one op when 64 callers each wait for their own before they ask for the next."""

    async def call(caller: int) -> None:
        for number in range(caller, count, CALLERS):
            await ask(number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for caller in range(CALLERS):
            tasks.create_task(call(caller))
    return (time.perf_counter() - began) / count


async def counters(directory: Path, effort: Effort) -> list[Row]:
    count, rows = effort.of(COUNT, QUICK_COUNT), []
    for name, key_of in (("64 counters", lambda number: b"%d" % (number % CALLERS)), ("1 counter", lambda _: b"one")):
        plain, ours = [], []
        for number in range(effort.rounds):
            plain.append(plain_increments(directory / f"plain{name}{number}.db", key_of))
            ours.append(await spyweb_increments(directory / f"ours{name}{number}.db", key_of, count))
        before, after = statistics.median(plain) * 1e6, statistics.median(ours) * 1e6
        figure = f"increment, 64 callers, {name}"
        rows.append(Row(figure=figure, ours=after, unit="us", peer="sqlite3", theirs=before, faster=True, reach=1.0))
    return rows


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


ASKS: dict[str, Callable[[Store, bytes], Awaitable[object]]] = {
    "increment": lambda store, key: store.values.transform(NAMESPACE, key, increment),
    "set": lambda store, key: store.values.transform(NAMESPACE, key, lambda entry: Put(random.getrandbits(40))),
    "get": lambda store, key: store.values.read(NAMESPACE, key),
}


async def by_size(directory: Path, effort: Effort) -> list[Row]:
    many = effort.of(MANY, QUICK_MANY)
    stores = {count: await opened(directory / f"size{count}.db") for count in (FEW, many)}
    for count, store in stores.items():
        await fill(store, count)
    rows = [await of_sizes(stores, name, used, effort) for used in (CALLERS, None) for name in ASKS]
    for store in stores.values():
        await store.close()
    return rows


async def of_sizes(stores: dict[int, Store], name: str, used: int | None, effort: Effort) -> Row:
    found: dict[int, list[Seconds]] = {count: [] for count in stores}
    for number in range(effort.rounds):
        for count, store in stores.items():
            keys = pick(count, used, number, effort.of(COUNT, QUICK_COUNT))
            found[count].append(await measure(ASKS[name], store, keys))
    few, many = (statistics.median(found[count]) * 1e6 for count in sorted(stores))
    figure = f"{name}, {f'{used} keys in use' if used else 'any key'} of {max(stores):,}"
    return Row(figure=figure, ours=many, unit="us", peer=f"of {FEW:,}", theirs=few, reach=1.5 if used else 2)


def pick(count: int, used: int | None, seed: int, asked: int) -> list[bytes]:
    dice = random.Random(seed)
    among = [dice.randrange(count) for _ in range(used)] if used else range(count)
    return [key_name(dice.choice(among)) for _ in range(asked)]


async def measure(ask: Callable[[Store, bytes], Awaitable[object]], store: Store, keys: list[bytes]) -> Seconds:
    return await drive(lambda number: ask(store, keys[number]), len(keys))


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
        rows = await counters(directory, effort)
        rows += await sweeps(directory, effort)
        rows += await by_size(directory, effort)
    show("typed state in the store", effort, rows)


if __name__ == "__main__":
    uvloop.run(main(read_effort(__doc__)))
