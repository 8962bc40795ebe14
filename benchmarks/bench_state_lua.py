"""Measure what `state` costs a script: counting, a random key among many, a lock that goes from run to run.

Counting from 64 jobs, each on a key of its own or all on one: beside one thread of sqlite3 that commits each of its
`INSERT ... ON CONFLICT DO UPDATE ... RETURNING`, and diskcache's `incr` from 16 threads where that is installed (`make
bench` sees to that), with every commit synced on both sides (FULL) and on neither (NORMAL, as diskcache comes).  Each
thread adds so often that those which wait for the file, up to 0.1 s at a time, do not make up the figure.

Size: what a script pays for an increment, a set and a get, from 64 jobs, where the namespace has 1,000,000 keys, beside
1,000: each of a key of its own, and each time of any key.

Handing over: from the moment before a run calls `state.unlock` to the moment when the `state.lock` of the next in line
has returned to its script, with all jobs in one line.
"""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, cast

import uvloop

from benchmarks.bench_state import FEW, MANY, NAMESPACE, QUICK_MANY, fill
from benchmarks.engine import Engine, make_job, open_engine
from benchmarks.place import folder
from benchmarks.plain_stores import GROWTH
from benchmarks.table import Effort, Row, median, percentile, read_effort, show
from spyweb.model import Durability
from spyweb.runs.live import LiveJob

JOBS, THREADS = 64, 16
PLAIN_COUNT = 1_500
SYNCHRONOUS = {Durability.NORMAL: 1, Durability.FULL: 2}  # as SQLite numbers them
COUNT = b"function run(ctx) for _ = 1, ctx.times do state.increment(ctx.key or ctx.job) end end"
OF_MANY = """
local draw = math.random
math.randomseed(%d)
local function any(keys) return string.format("user:%%08d:visits", draw(0, keys - 1)) end
local own
function run(ctx)
    own = own or any(ctx.keys)
    for _ = 1, ctx.times do
        local key = ctx.any and any(ctx.keys) or own
        %s
    end
end
"""
ASKS = {
    "increment": "state.increment(key)",
    "set": "state.set(key, draw(1 << 40))",
    "get": "assert(state.get(key))",
}
HAND_OVER = b"""
function run(ctx)
    local moments = {}
    for i = 1, ctx.times do
        assert(state.lock("door", 600))
        moments[2 * i - 1], moments[2 * i] = os.clock(), os.clock()
        state.unlock("door")
    end
    return moments
end
"""

TABLE = "CREATE TABLE entry (namespace TEXT, key BLOB, value, PRIMARY KEY (namespace, key))"
ADD = """
    INSERT INTO entry VALUES (?, ?, 1) ON CONFLICT (namespace, key) DO UPDATE SET value = value + 1 RETURNING value
"""

Figures = dict[str, float]


class Cache(Protocol):
    """The methods of diskcache that are used."""

    def incr(self, key: str, delta: int = 1, default: int = 0) -> int: ...
    def close(self) -> None: ...


class OpenCache(Protocol):
    def __call__(self, folder: str, /, *, sqlite_synchronous: int) -> Cache: ...


def find_diskcache() -> OpenCache | None:
    try:
        module = importlib.import_module("diskcache")
    except ImportError:
        return None
    return cast(OpenCache, module.Cache)


def plain_increments(path: Path, key_of: Callable[[int], bytes]) -> float:
    """Return the seconds an increment takes, from one thread."""
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


def cached_increments(open_cache: OpenCache, folder: Path, durability: Durability, times: int) -> float:
    """Return the seconds an increment takes, from that many threads on one file."""
    cache = open_cache(str(folder), sqlite_synchronous=SYNCHRONOUS[durability])

    def count(thread: int) -> None:
        for _ in range(times):
            cache.incr(f"key{thread}")

    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(count, range(THREADS)))
    took = time.perf_counter() - began
    cache.close()
    return took / (THREADS * times)


async def count(engine: Engine, jobs: Sequence[LiveJob], times: int, key: str | None) -> float:
    """Return the seconds an increment takes."""
    ctx: dict[str, object] = {"times": times} if key is None else {"times": times, "key": key}
    return await engine.call_all(jobs, ctx) / (len(jobs) * times)


async def hand_over(engine: Engine, jobs: Sequence[LiveJob], times: int) -> list[float]:
    """Return the seconds that each handover of a lock takes."""
    turns: list[tuple[float, float]] = []  # had it, gave it back
    for moments in await asyncio.gather(*(engine.call(job, {"times": times}) for job in jobs)):
        turns += zip(cast("list[float]", moments)[::2], cast("list[float]", moments)[1::2], strict=True)
    turns.sort()
    return [following[0] - turn[1] for turn, following in pairwise(turns)]


async def counted(root: Path, durability: Durability, effort: Effort) -> Figures:
    times = effort.of(500, 3)
    async with open_engine(root, durability=durability) as engine:
        await engine.runtime.store.values.set("", b"", GROWTH)
        counters = [make_job(f"counter{number}", COUNT) for number in range(JOBS)]
        await count(engine, counters, 1, None)  # makes their VMs
        return {
            "64 jobs, own keys": await count(engine, counters, times, None),
            "64 jobs, one key": await count(engine, counters, times, "shared"),
            "1 job": await count(engine, counters[:1], times, None),
        }


async def handed_over(root: Path, effort: Effort) -> Figures:
    async with open_engine(root) as engine:
        holders = [make_job(f"holder{number}", HAND_OVER) for number in range(JOBS)]
        await hand_over(engine, holders, 1)
        delays = await hand_over(engine, holders, effort.of(20, 2))
        return {"p50": percentile(delays, 0.5), "p99": percentile(delays, 0.99), "worst": max(delays)}


async def by_size(root: Path, effort: Effort) -> list[Row]:
    """Fill a store of each size once, and measure the sizes in turns."""
    sizes = (FEW, effort.of(MANY, QUICK_MANY))
    found: dict[tuple[str, bool, int], list[float]] = defaultdict(list)
    async with AsyncExitStack() as opened:
        roots = {size: Path(opened.enter_context(TemporaryDirectory(dir=root))) for size in sizes}
        engines = {size: await opened.enter_async_context(filled(roots[size], size)) for size in sizes}
        crowds = {name: [make_job(f"{name}{number}", of_many(name, number)) for number in range(JOBS)] for name in ASKS}
        for times in (1, *[effort.of(100, 3)] * effort.rounds):  # the first makes their VMs
            for name, is_any, size in product(ASKS, (False, True), sizes):
                took = await engines[size].call_all(crowds[name], {"times": times, "keys": size, "any": is_any})
                found[name, is_any, size].append(took / (JOBS * times))
    return [
        row_of_sizes(
            f"state.{name}, 64 jobs, {'any key' if is_any else 'own keys'}",
            {size: found[name, is_any, size][1:] for size in sizes},
        )
        for is_any, name in product((False, True), ASKS)
    ]


@asynccontextmanager
async def filled(root: Path, size: int) -> AsyncIterator[Engine]:
    async with open_engine(root) as engine:
        await engine.runtime.store.values.set("", b"", GROWTH)
        await fill(engine.runtime.store, size)
        yield engine


def of_many(name: str, seed: int) -> bytes:
    return (OF_MANY % (seed, ASKS[name])).encode()


def row_of_sizes(figure: str, found: Mapping[int, Sequence[float]]) -> Row:
    few, many = (median(found[size]) * 1e6 for size in sorted(found))
    reach = 1.5 if "own keys" in figure else 2.5  # a thousand are answered from memory
    return Row(figure=f"{figure} of {max(found):,}", ours=many, unit="us", peer=f"of {FEW:,}", theirs=few, reach=reach)


def one_round(effort: Effort) -> Figures:
    figures: Figures = {}
    open_cache = find_diskcache()
    for durability in Durability:
        with folder() as root:
            ours = uvloop.run(counted(root, durability, effort))
            figures |= {f"{what}, {durability.name}": took for what, took in ours.items()}
            if open_cache:
                theirs = cached_increments(open_cache, root / "cache", durability, effort.of(1000, 2))
                figures[f"diskcache, {durability.name}"] = theirs
    with folder() as root:
        figures |= uvloop.run(handed_over(root, effort))
        figures["sqlite3"] = plain_increments(root / "plain.db", lambda number: b"%d" % (number % JOBS))
    return figures


def rows_of(seconds: Figures) -> list[Row]:
    us = {what: took * 1e6 for what, took in seconds.items()}
    rows = []
    for figure in ("64 jobs, own keys", "64 jobs, one key", "1 job"):
        promised = figure.startswith("64")
        rows.append(Row(figure=f"increment, {figure}, FULL", ours=us[f"{figure}, FULL"], unit="us",
                        peer="sqlite3 autocommit, 1 thread", theirs=us["sqlite3"], faster=True,
                        reach=1 if promised else None))  # fmt: skip
        for ours, theirs in (("FULL", "FULL"), ("NORMAL", "NORMAL"), ("FULL", "NORMAL")):
            if promised and f"diskcache, {theirs}" in us:
                rows.append(Row(figure=f"increment, {figure}, {ours}", ours=us[f"{figure}, {ours}"], unit="us",
                                peer=f"diskcache, 16 threads, {theirs}", theirs=us[f"diskcache, {theirs}"], faster=True,
                                reach={"FULL": 3, "NORMAL": 1}[ours] if ours == theirs else None))  # fmt: skip
    for share in ("p50", "p99", "worst"):
        limit = 50 if share == "p99" else None
        rows.append(Row(figure=f"lock hand-over, {share}", ours=seconds[share] * 1e3, unit="ms", limit=limit))
    return rows


def main() -> None:
    effort = read_effort(__doc__)
    rounds = [one_round(effort) for _ in range(effort.rounds)]
    seconds = {what: median(figures[what] for figures in rounds) for what in rounds[0]}
    with folder() as root:
        sizes = uvloop.run(by_size(root, effort))
    show("State from Lua: time an increment, and of handing a lock over", effort, rows_of(seconds) + sizes)
    if find_diskcache() is None:
        print("  diskcache is not installed: `make bench` shows it beside")


if __name__ == "__main__":
    main()
