"""What `state` costs a script, end to end: counting, a random key among many, a lock that goes from run to run.

Counting from 64 jobs, each on a key of its own or all on one: beside one thread of sqlite3 that commits each of its
`INSERT ... ON CONFLICT DO UPDATE ... RETURNING`, and diskcache's `incr` from 16 threads where that is installed (`make
bench` sees to that).  The store syncs each commit and diskcache none (`synchronous = NORMAL`), so a second figure of
ours, as unsynced, stands beside it.

Size: what a script pays for an increment, a set and a get of a random key, from 64 jobs, where the namespace has
1,000,000 keys, beside 1,000.  bench_state.py measures the same inside the store, without the way of an op from the
script to there and back.

Handing over: from the moment before a run calls `state.unlock` to the moment when the `state.lock` of the next in line
has returned to its script, with all jobs in one line.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, cast

import uvloop

from benchmarks.bench_state import FEW, MANY, QUICK_MANY, fill, plain_increments
from benchmarks.bench_store import GROWTH
from benchmarks.engine import Engine, make_job, open_engine
from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, percentile, read_effort, show
from spyweb.jobs.live import LiveJob
from spyweb.store.protocol import Durability

JOBS, THREADS = 64, 16
COUNT = b"function run(ctx) for _ = 1, ctx.times do state.increment(ctx.key or ctx.job) end end"
ANY_KEY = """
local draw = math.random
math.randomseed(%d)
function run(ctx)
    for _ = 1, ctx.times do
        local key = string.format("user:%%08d:visits", draw(0, ctx.keys - 1))
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

Figures = dict[str, float]


class Cache(Protocol):
    """What is used of diskcache."""

    def incr(self, key: str, delta: int = 1, default: int = 0) -> int: ...
    def close(self) -> None: ...


def find_diskcache() -> Callable[[str], Cache] | None:
    try:
        module = importlib.import_module("diskcache")
    except ImportError:
        return None
    return cast("Callable[[str], Cache]", module.Cache)


def cached_increments(open_cache: Callable[[str], Cache], root: Path, times: int) -> float:
    """Seconds an increment, from that many threads on one file."""
    cache = open_cache(str(root / "diskcache"))

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
    """Seconds an increment."""
    ctx: dict[str, object] = {"times": times} if key is None else {"times": times, "key": key}
    return await engine.call_all(jobs, ctx) / (len(jobs) * times)


async def hand_over(engine: Engine, jobs: Sequence[LiveJob], times: int) -> list[float]:
    """Seconds of each."""
    turns: list[tuple[float, float]] = []  # had it, gave it back
    for moments in await asyncio.gather(*(engine.call(job, {"times": times}) for job in jobs)):
        turns += zip(cast("list[float]", moments)[::2], cast("list[float]", moments)[1::2], strict=True)
    turns.sort()
    return [following[0] - turn[1] for turn, following in pairwise(turns)]


async def unsynced(root: Path, effort: Effort) -> Figures:
    """As diskcache commits."""
    times = effort.of(150, 3)
    async with open_engine(root, durability=Durability.NORMAL) as engine:
        await engine.parts.store.entries.set("", b"", GROWTH)
        counters = [make_job(f"counter{number}", COUNT) for number in range(JOBS)]
        await count(engine, counters, 1, None)  # makes their VMs
        return {
            "64 jobs, own keys, NORMAL": await count(engine, counters, times, None),
            "64 jobs, one key, NORMAL": await count(engine, counters, times, "shared"),
        }


async def ours(root: Path, effort: Effort) -> Figures:
    times, turns = effort.of(150, 3), effort.of(20, 2)
    async with open_engine(root) as engine:
        await engine.parts.store.entries.set("", b"", GROWTH)
        counters = [make_job(f"counter{number}", COUNT) for number in range(JOBS)]
        holders = [make_job(f"holder{number}", HAND_OVER) for number in range(JOBS)]
        await count(engine, counters, 1, None)  # makes their VMs
        figures = {
            "64 jobs, own keys": await count(engine, counters, times, None),
            "64 jobs, one key": await count(engine, counters, times, "shared"),
            "1 job": await count(engine, counters[:1], times * 2, None),
        }
        await hand_over(engine, holders, 1)
        delays = await hand_over(engine, holders, turns)
        return {**figures, "p50": percentile(delays, 0.5), "p99": percentile(delays, 0.99), "worst": max(delays)}


async def by_size(root: Path, effort: Effort) -> list[Row]:
    """Fills each store once; the sizes take turns."""
    sizes = (FEW, effort.of(MANY, QUICK_MANY))
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    async with AsyncExitStack() as opened:
        roots = {size: Path(opened.enter_context(TemporaryDirectory(dir=root))) for size in sizes}
        engines = {size: await opened.enter_async_context(filled(roots[size], size)) for size in sizes}
        crowds = {name: [make_job(f"{name}{number}", any_key(name, number)) for number in range(JOBS)] for name in ASKS}
        for times in (1, *[effort.of(100, 3)] * effort.rounds):  # the first makes their VMs
            for name, crowd in crowds.items():
                for size, engine in engines.items():
                    took = await engine.call_all(crowd, {"times": times, "keys": size})
                    found[name, size].append(took / (JOBS * times))
    return [row_of_sizes(name, {size: found[name, size][1:] for size in sizes}) for name in ASKS]


@asynccontextmanager
async def filled(root: Path, size: int) -> AsyncIterator[Engine]:
    async with open_engine(root) as engine:
        await engine.parts.store.entries.set("", b"", GROWTH)
        await fill(engine.parts.store, size)
        yield engine


def any_key(name: str, seed: int) -> bytes:
    return (ANY_KEY % (seed, ASKS[name])).encode()


def row_of_sizes(name: str, found: Mapping[int, Sequence[float]]) -> Row:
    few, many = (median(found[size]) * 1e6 for size in sorted(found))
    figure = f"state.{name}, 64 jobs, any key of {max(found):,}"
    return Row(figure=figure, ours=many, unit="us", peer=f"of {FEW:,}", theirs=few, reach=1.5)


def one_round(effort: Effort) -> Figures:
    cache = find_diskcache()
    with folder() as root:
        figures = uvloop.run(ours(root, effort))
    with folder() as root:
        figures |= uvloop.run(unsynced(root, effort))
        figures["sqlite3"] = plain_increments(root / "plain.db", lambda number: b"%d" % (number % JOBS))
        if cache:
            figures["diskcache"] = cached_increments(cache, root, effort.of(100, 2))
    return figures


def rows_of(seconds: Figures) -> list[Row]:
    us = {what: value * 1e6 for what, value in seconds.items()}
    rows = []
    for figure in ("64 jobs, own keys", "64 jobs, one key", "1 job"):
        promised = figure.startswith("64")
        rows.append(Row(figure=f"increment, {figure}", ours=us[figure], unit="us", peer="sqlite3 autocommit, 1 thread",
                        theirs=us["sqlite3"], faster=True, reach=1 if promised else None))  # fmt: skip
        if promised and "diskcache" in us:
            rows.append(Row(figure=f"increment, {figure}", ours=us[figure], unit="us", peer="diskcache, 16 threads",
                            theirs=us["diskcache"], faster=True, reach=3))  # fmt: skip
            rows.append(Row(figure=f"increment, {figure}, NORMAL", ours=us[f"{figure}, NORMAL"], unit="us",
                            peer="diskcache, 16 threads", theirs=us["diskcache"], faster=True))  # fmt: skip
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
    show(
        "State from Lua: time an increment, and of handing a lock over; commits synced but for NORMAL",
        effort,
        rows_of(seconds) + sizes,
    )
    if "diskcache" not in seconds:
        print("  diskcache is not installed: `make bench` shows it beside")


if __name__ == "__main__":
    main()
