"""Run the peer of bench_runs in a separate process: python -m benchmarks.bare_apscheduler JOBS RUNS_A_SECOND SECONDS

APScheduler's AsyncIOScheduler as its manual shows it: in memory, an interval trigger for each job, empty coroutines.
Prints runs a second, microseconds of processor a run, and the p99 of lateness in milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from datetime import UTC, datetime, timedelta

import uvloop
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from benchmarks.table import percentile


async def main(jobs: int, rate: int, seconds: float) -> None:
    late: list[float] = []
    period = jobs / rate
    first = time.time() + 0.5 + jobs / 10_000

    async def run(offset: float) -> None:
        late.append((time.time() - first - offset) % period * 1e3)

    scheduler = AsyncIOScheduler(timezone=UTC)
    start = datetime.fromtimestamp(first, UTC)
    for number in range(jobs):
        offset = number / rate
        scheduler.add_job(
            run, "interval", [offset], seconds=period, start_date=start + timedelta(seconds=offset),
            misfire_grace_time=None, coalesce=True, max_instances=1_000_000,
        )  # fmt: skip
    scheduler.start()
    await asyncio.sleep(max(0.0, first - time.time()) + 0.3)
    late.clear()
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    cpu, took = time.process_time() - cpu, time.perf_counter() - began
    print(len(late) / took, cpu / len(late) * 1e6, percentile(late, 0.99))
    scheduler.shutdown(wait=False)


if __name__ == "__main__":
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
