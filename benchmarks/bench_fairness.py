"""Measure what a bad job costs the others: the lateness of small jobs beside each kind of hog.

The peer of each figure is the same crowd without a hog, in the same run.  Each hog is on a schedule of its own and is
ended by its limits, again and again; what a caller of /healthz waits meanwhile is shown too.  "All of them" are those
that keep workers busy.  Durability is "normal":
what is asked here is who gets the processors, and a disk that stalls would answer something else.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import uvloop

from benchmarks.engine import Engine, make_job, open_engine, small_jobs
from benchmarks.place import folder
from benchmarks.table import Row, median, percentile, read_effort, show
from spyweb.daemon.serve import open_listeners
from spyweb.model import MIB, Durability, Every, Outcome, Run
from spyweb.runs.live import LiveJob

CROWD, RATE = 200, 1000
CPU_LIMIT_MS, TIMEOUT_MS = 1000, 2000
LATE_MS, ALL_LATE_MS = 50, 100  # beside one hog, and beside more of them than there are processors
OVER_LIMIT_MS = 1500  # a hog ends at most so long after its limit

HOGS = {
    "a spinner": b"while true do end",
    "a catastrophic string.find": b"string.find(('a'):rep(30000), '.-.-.-b')",
    "an allocator over its limit": b"local t = {} for i = 1, 1e9 do t[i] = {i} end",
    "a job of 15 ms steps": b"""
        while true do local till = os.clock() + 0.015 repeat until os.clock() > till store_get('x') end""",
    "a table.sort of 100,000": b"""
        while true do local t = {} for i = 1, 1e5 do t[i] = i * 7919 % 100003 end table.sort(t) end""",
    "8 MB values": b"local s = ('x'):rep(8000000) while true do store_get(s) end",
}
COUNT_UP_TO = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT %d) SELECT %s FROM c"
# What takes its time in the daemon, and not in a worker.
OP_HOGS = {
    "SQL without end": b"while true do pcall(db_query, '%s') end" % (COUNT_UP_TO % (1 << 62, "count(*)")).encode(),
    "100,000 rows of SQL": b"while true do db_query('%s') end" % (COUNT_UP_TO % (100_000, "n")).encode(),
    "lists of 10,000 keys": b"""
        for i = 1, 1e4 do state.set('key' .. i, i) end
        while true do state.list() end""",
    "updates of 1,000 ops": b"""
        local ops = {} for i = 1, 1000 do ops[i] = {type = 'increment', path = 'f' .. i, by = 1} end
        while true do state.update{scope = 's', key = 'k', ops = ops} end""",
    "values of 1 MB, cleared": b"""
        local s = ('x'):rep(1000000)
        while true do for i = 1, 20 do state.set('key' .. i, s) end state.clear('key*') end""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HogResult:
    """What was measured beside some hogs."""

    late_ms: float  # p99 of the crowd: the median of several windows
    healthz_ms: float  # p99
    over_ms: float  # how long after its limit the slowest hog ended
    lost: int  # runs of the crowd


async def measure_beside(hogs: dict[str, bytes], windows: int, seconds: float) -> HogResult:
    with folder() as root:
        async with AsyncExitStack() as stack:
            opened = open_engine(root, durability=Durability.NORMAL, is_timed=True)
            engine = await stack.enter_async_context(opened)
            await open_listeners(stack, engine.daemon)
            crowd = small_jobs(CROWD, RATE)
            bad = [make_hog(number, source) for number, source in enumerate(hogs.values())]
            engine.add(crowd)
            await engine.run_all(crowd)
            await engine.go()
            engine.add(bad)
            await engine.daemon.scheduler.activate(bad, {})
            await asyncio.sleep(seconds / 2)
            probe = await ask_all_the_time(engine, seconds * windows)
            late = [await late_in_a_window(engine, seconds) for _ in range(windows)]
            told, _ = await probe.communicate()
            return HogResult(
                late_ms=median(late),
                healthz_ms=float(told),
                over_ms=await longest_over_limit(engine, bad),
                lost=await count_lost(engine, crowd),
            )


async def late_in_a_window(engine: Engine, seconds: float) -> float:
    engine.lateness.take()
    await asyncio.sleep(seconds)
    return percentile(engine.lateness.take("small"), 0.99)


async def ask_all_the_time(engine: Engine, seconds: float) -> asyncio.subprocess.Process:
    url = f"http://127.0.0.1:{engine.runtime.settings.server.port}/healthz"
    command = [sys.executable, "-m", "benchmarks.probe", url, str(seconds)]
    return await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)


def make_hog(number: int, source: bytes) -> LiveJob:
    limits = {"cpu_limit_ms": CPU_LIMIT_MS, "timeout_ms": TIMEOUT_MS, "memory_limit": 32 * MIB}
    return make_job(f"hog{number}", source, Every(period_ms=100), **limits)


async def longest_over_limit(engine: Engine, bad: Sequence[LiveJob]) -> float:
    runs: list[Run] = []
    for job in bad:
        runs += await engine.runtime.store.runs.list(job.id)
    lengths = [run.ended_ms - run.started_ms for run in runs if run.started_ms and run.ended_ms]
    return max([*(length - TIMEOUT_MS for length in lengths), 0])


async def count_lost(engine: Engine, crowd: Sequence[LiveJob]) -> int:
    lost = 0
    for job in crowd:
        runs = await engine.runtime.store.runs.list(job.id, limit=1000)
        lost += sum(run.outcome is Outcome.LOST for run in runs)
    return lost


def main() -> None:
    effort = read_effort(__doc__)
    windows, seconds = effort.rounds, 0.3 if effort.quick else 1.2
    alone = uvloop.run(measure_beside({}, windows, seconds))
    cases = {} if effort.quick else {name: {name: source} for name, source in (HOGS | OP_HOGS).items()}
    cases["all of them together"] = HOGS
    rows = []
    for name, hogs in cases.items():
        seen = uvloop.run(measure_beside(hogs, windows, seconds))
        rows += [
            Row(
                figure=f"{name}: lateness p99",
                ours=seen.late_ms,
                unit="ms",
                peer="no hog",
                theirs=alone.late_ms,
                limit=LATE_MS if len(hogs) == 1 else ALL_LATE_MS,
            ),
            Row(
                figure=f"{name}: /healthz p99",
                ours=seen.healthz_ms,
                unit="ms",
                peer="no hog",
                theirs=alone.healthz_ms,
                limit=50,
            ),
        ]
        if len(hogs) > 1:
            rows.append(Row(figure=f"{name}: ended after the limit", ours=seen.over_ms, unit="ms", limit=OVER_LIMIT_MS))
            rows.append(Row(figure=f"{name}: lost runs of others", ours=seen.lost, unit="runs"))
    show("200 small jobs, 1,000 runs/s, beside a hog", effort, rows)


if __name__ == "__main__":
    main()
