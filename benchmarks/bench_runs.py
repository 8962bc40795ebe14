"""Measure what a scheduled run costs, and how late it is, beside bare APScheduler running empty coroutines.

Ours is durable (cursor and run committed with synchronous = FULL before it starts) and real: each run is Lua with two
store ops, in workers.  Lateness is from the due time to the arrival of its first op.  Processor time is that of all
processes, the workers included.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop

from benchmarks.engine import Engine, open_engine, small_jobs
from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, percentile, read_effort, show


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was measured over a while."""

    runs_per_second: float
    cpu_us: float  # a run
    late_ms: float  # p99


Case = tuple[int, int]  # jobs, runs a second

FEW, BIG = (100, 1000), (10_000, 1000)
CASES: Sequence[Case] = ((200, 200), FEW, BIG)
QUICK: Sequence[Case] = ((100, 200),)


def bare(jobs: int, rate: int, seconds: float) -> Window:
    command = [sys.executable, "-m", "benchmarks.bare_apscheduler", str(jobs), str(rate), str(seconds)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    runs_per_second, cpu_us, late_ms = map(float, told)
    return Window(runs_per_second=runs_per_second, cpu_us=cpu_us, late_ms=late_ms)


async def ours(jobs: int, rate: int, seconds: float, windows: int) -> list[Window]:
    with folder() as root:
        async with open_engine(root, is_timed=True) as engine:
            small = small_jobs(jobs, rate)
            engine.add(small)
            await engine.run_all(small)
            await engine.go()
            await asyncio.sleep(1)
            return [await look(engine, seconds) for _ in range(windows)]


async def look(engine: Engine, seconds: float) -> Window:
    engine.lateness.take()
    loop = asyncio.get_running_loop()
    cpu, began = engine.cpu(), loop.time()
    await asyncio.sleep(seconds)
    late, cpu, took = engine.lateness.take(), engine.cpu() - cpu, loop.time() - began
    return Window(runs_per_second=len(late) / took, cpu_us=cpu / len(late) * 1e6, late_ms=percentile(late, 0.99))


def middle(windows: Sequence[Window]) -> Window:
    return Window(
        runs_per_second=median(window.runs_per_second for window in windows),
        cpu_us=median(window.cpu_us for window in windows),
        late_ms=median(window.late_ms for window in windows),
    )


def measure(case: Case, effort: Effort) -> tuple[Window, Window]:
    """Measure spyweb, and the peer before and after it, so that a machine that gets slower is slow for both."""
    seconds = 0.5 if effort.quick else 1.5
    before = bare(*case, seconds)
    mine = uvloop.run(ours(*case, seconds, effort.rounds))
    return middle(mine), middle([before, *(bare(*case, seconds) for _ in range(effort.rounds - 1))])


def rows_of(case: Case, mine: Window, theirs: Window) -> list[Row]:
    jobs, rate = case
    what, peer = f"{jobs:,} jobs, {rate:,} runs/s", "APScheduler, empty coroutines"
    return [
        Row(figure=f"{what}: CPU a run", ours=mine.cpu_us, unit="us", peer=peer, theirs=theirs.cpu_us,
            reach=3.5 if rate == 1000 else None),
        Row(figure=f"{what}: lateness p99", ours=mine.late_ms, unit="ms", peer=peer, theirs=theirs.late_ms,
            limit=25 if case == BIG else None),
        Row(figure=f"{what}: time a run took of the clock", ours=1e3 / mine.runs_per_second, unit="ms", peer=peer,
            theirs=1e3 / theirs.runs_per_second, reach=1.02),
    ]  # fmt: skip


def main() -> None:
    effort = read_effort(__doc__)
    rows, cpu = [], {}
    for case in QUICK if effort.quick else CASES:
        mine, theirs = measure(case, effort)
        rows += rows_of(case, mine, theirs)
        cpu[case] = mine.cpu_us
    if BIG in cpu:
        few = [cpu[FEW], measure(FEW, effort)[0].cpu_us]  # before and after
        rows.append(Row(figure="CPU a run, 10,000 jobs", ours=cpu[BIG], unit="us", peer="the same, 100 jobs",
                        theirs=median(few), reach=1.3))  # fmt: skip
    show("Scheduled runs, FULL, 2 workers", effort, rows)


if __name__ == "__main__":
    main()
