"""What typed state costs in the store, beside plain sqlite3 in the same run.

    python -m benchmarks.bench_state [ROUNDS]

1. A counter: 64 callers that each add to a counter of their own, or all to one, against plain sqlite3 that commits
   each of its `INSERT … ON CONFLICT DO UPDATE … RETURNING`; both with every commit synced.
2. Size: an increment, a set and a get of a random key among 1,000 and among 1,000,000; and of one of 64 keys that
   are in use among so many.  A write of a random key among very many is the worst case: it writes a page of its own.
3. Sweep: the longest and the median time that a set takes while 100,000 expired keys are swept.

Each figure is the median over the rounds, on fresh files in one directory; candidates take turns.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from spyweb.clock import RealClock
from spyweb.store.protocol import KEEP, Durability, Entry, Item, Put
from spyweb.store.sqlite import SqliteStore, open_store

CALLERS = 64
COUNT = 20_000
PLAIN_COUNT = 1_500
FEW, MANY = 1_000, 1_000_000
LOADED_AT_ONCE = 20_000
EXPIRING = 100_000
NAMESPACE = "state"
GROWTH = bytes(5 << 20)  # more than the log holds between two checkpoints

TABLE = "CREATE TABLE entry (namespace TEXT, key BLOB, value, PRIMARY KEY (namespace, key))"
ADD = """
    INSERT INTO entry VALUES (?, ?, 1) ON CONFLICT (namespace, key) DO UPDATE SET value = value + 1 RETURNING value
"""

Seconds = float


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


async def spyweb_increments(path: Path, key_of: Callable[[int], bytes]) -> Seconds:
    store = await opened(path)
    await store.values.transform("", b"", lambda entry: Put(GROWTH))
    taken = await drive(lambda number: store.values.transform(NAMESPACE, key_of(number), increment), COUNT)
    counted = [entry.value for _, entry in await store.values.items(NAMESPACE)]
    assert sum(value for value in counted if isinstance(value, int)) == COUNT
    await store.close()
    return taken


async def opened(path: Path, durability: Durability = Durability.FULL) -> SqliteStore:
    return await open_store(path, clock=RealClock(), durability=durability)


async def drive(ask: Callable[[int], Awaitable[object]], count: int) -> Seconds:
    """The time of one op when 64 callers each wait for their own before they ask for the next."""

    async def call(caller: int) -> None:
        for number in range(caller, count, CALLERS):
            await ask(number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for caller in range(CALLERS):
            tasks.create_task(call(caller))
    return (time.perf_counter() - began) / count


async def counters(directory: Path, rounds: int) -> None:
    for name, key_of in (("64 counters", lambda number: b"%d" % (number % CALLERS)), ("1 counter", lambda _: b"one")):
        plain, ours = [], []
        for number in range(rounds):
            plain.append(plain_increments(directory / f"plain{name}{number}.db", key_of))
            ours.append(await spyweb_increments(directory / f"ours{name}{number}.db", key_of))
        before, after = statistics.median(plain), statistics.median(ours)
        print(
            f"{name:12} sqlite3 {before * 1e6:7.1f} us   store {after * 1e6:7.1f} us   {before / after:5.2f} x as fast"
        )


async def fill(store: SqliteStore, count: int) -> None:
    entry = Entry(value=1, version=1, created_ms=0, updated_ms=0)
    keys = random.Random(1).sample(range(count), count)  # as scripts would come by them, not in their order
    for start in range(0, count, LOADED_AT_ONCE):
        some = [
            Item(namespace=NAMESPACE, key=key_name(key), entry=entry) for key in keys[start : start + LOADED_AT_ONCE]
        ]
        await store.values.load(some, replace=True)


def key_name(number: int) -> bytes:
    return b"user:%08d:visits" % number


async def by_size(directory: Path, rounds: int) -> None:
    stores = {count: await opened(directory / f"size{count}.db") for count in (FEW, MANY)}
    for count, store in stores.items():
        await fill(store, count)
    asks: dict[str, Callable[[SqliteStore, bytes], Awaitable[object]]] = {
        "increment": lambda store, key: store.values.transform(NAMESPACE, key, increment),
        "set": lambda store, key: store.values.transform(NAMESPACE, key, lambda entry: Put(random.getrandbits(40))),
        "get": lambda store, key: store.values.read(NAMESPACE, key),
    }
    for used in (CALLERS, None):
        for name, ask in asks.items():
            found: dict[int, list[Seconds]] = {count: [] for count in stores}
            for number in range(rounds):
                for count, store in stores.items():
                    found[count].append(await measure(ask, store, pick(count, used, number)))
            few, many = (statistics.median(found[count]) * 1e6 for count in (FEW, MANY))
            which = f"{name}, {f'{used} in use' if used else 'any key'}"
            print(f"{which:24} {FEW:,} keys {few:6.1f} us   {MANY:,} keys {many:6.1f} us   {many / few:4.2f} x")
    for store in stores.values():
        await store.close()


def pick(count: int, used: int | None, seed: int) -> list[bytes]:
    dice = random.Random(seed)
    among = [dice.randrange(count) for _ in range(used)] if used else range(count)
    return [key_name(dice.choice(among)) for _ in range(COUNT)]


async def measure(
    ask: Callable[[SqliteStore, bytes], Awaitable[object]], store: SqliteStore, keys: list[bytes]
) -> Seconds:
    return await drive(lambda number: ask(store, keys[number]), len(keys))


async def sweep(directory: Path) -> None:
    store = await opened(directory / "sweep.db")
    expired = Entry(value=b"x" * 50, version=1, created_ms=0, updated_ms=0, expires_ms=RealClock().now_ms() + 5000)
    keys = random.Random(2).sample(range(EXPIRING), EXPIRING)
    for start in range(0, EXPIRING, LOADED_AT_ONCE):
        some = [
            Item(namespace=NAMESPACE, key=key_name(key), entry=expired) for key in keys[start : start + LOADED_AT_ONCE]
        ]
        await store.values.load(some, replace=True)
    await asyncio.sleep(expired_after_s(expired))
    sweeping = asyncio.ensure_future(store.values.sweep())
    times: list[Seconds] = []
    began = time.perf_counter()
    while not sweeping.done():
        asked = time.perf_counter()
        await store.values.transform("other", b"k", increment)
        times.append(time.perf_counter() - asked)
    took = time.perf_counter() - began
    print(
        f"sweep of {await sweeping:,} keys: {took:.2f} s; an increment meanwhile: "
        f"median {statistics.median(times) * 1e3:.1f} ms, longest {max(times) * 1e3:.1f} ms, {len(times)} of them"
    )
    await store.close()


def expired_after_s(entry: Entry) -> Seconds:
    return max((entry.expires_ms or 0) - RealClock().now_ms() + 1, 0) / 1000


async def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        directory = Path(name)
        await counters(directory, rounds)
        await sweep(directory)
        await by_size(directory, rounds)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
