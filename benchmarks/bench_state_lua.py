"""What `state` costs a script, end to end: counting from 64 jobs, and handing a lock from one run to the next.

Counting, each job on a key of its own or all on one: beside one thread of sqlite3 that commits each of its
`INSERT ... ON CONFLICT DO UPDATE ... RETURNING`, and diskcache's `incr` from 16 threads where that is installed (`make
bench` sees to that).  The store syncs each commit and diskcache none (`synchronous = NORMAL`), so a second figure of
ours, as unsynced, stands beside it.  Handing over: from the moment before a run calls `state.unlock` to the moment when
the `state.lock` of the next in line has returned to its script, with all jobs in one line.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Protocol, cast

import uvloop

from benchmarks.bench_state import plain_increments
from benchmarks.bench_store import GROWTH
from benchmarks.engine import Engine, make_job, open_engine
from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, percentile, read_effort, show
from spyweb.jobs.live import LiveJob
from spyweb.store.protocol import Durability

JOBS, THREADS = 64, 16
COUNT = b"function run(ctx) for _ = 1, ctx.times do state.increment(ctx.key or ctx.job) end end"
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
    show(
        "State from Lua: time an increment, and of handing a lock over; commits synced but for NORMAL",
        effort,
        rows_of(seconds),
    )
    if "diskcache" not in seconds:
        print("  diskcache is not installed: `make bench` shows it beside")


if __name__ == "__main__":
    main()
