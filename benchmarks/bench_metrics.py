"""Measure what a scrape of /metrics costs the loop, with 1,000 jobs that have had four outcomes each.

The peer is prometheus-client as it is usually used: the same series in its own counters, written where it is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, generate_latest

from benchmarks.table import Row, median, read_effort, show
from spyweb.clock import RealClock
from spyweb.daemon.serve import tune_interpreter
from spyweb.lua.session import Code, PoolStats
from spyweb.model import Cursor, JobId, JobSpec, Outcome, Run, RunId, RunState
from spyweb.ops.world import Metrics
from spyweb.runs.counters import RunCounters
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.service.metrics import MetricsService
from spyweb.service.open_incidents import OpenIncidents
from spyweb.store.sqlite.store import open_in_memory
from spyweb.views.health import Vitals, view_health
from spyweb.web.exposition import write

JOBS = 1_000
OUTCOMES = (Outcome.SUCCESS, Outcome.FAILED, Outcome.LOST, Outcome.SKIPPED)
BEAT_S = 0.0005


@dataclass(slots=True)
class Heartbeat:
    """Beats on the loop, and knows the longest pause between two beats."""

    worst_s: float = 0.0

    async def beat(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(BEAT_S)
            self.worst_s = max(self.worst_s, time.perf_counter() - began - BEAT_S)


def make_live(jobs: int) -> tuple[LiveJobs, RunCounters]:
    live, counters = LiveJobs(), RunCounters()
    for number in range(jobs):
        job = JobId(f"job{number}")
        spec = JobSpec(id=job, name=job, path=f"jobs/{job}.lua", folder=f"jobs/{job}")
        code = Code(job=job, generation=1, chunk=spec.path, source=b"")
        live.add(LiveJob(spec=spec, code=code, digest="", cursor=Cursor(job=job, due_ms=0, schedule="")))
        counters.started(job, 1)
        for outcome in OUTCOMES:
            run = Run(id=RunId(1), job=job, state=RunState.ENDED, outcome=outcome, started_ms=0, ended_ms=1_000)
            counters.ended(run, has_lasted=True)
    return live, counters


async def open_service(jobs: int) -> tuple[MetricsService, Vitals]:
    live, counters = make_live(jobs)
    store = await open_in_memory(clock=RealClock())
    vitals = Vitals(
        version="0",
        pid=1,
        uptime_s=1,
        scheduler_lag_ms=0,
        store=store.stats(),
        pool=PoolStats(rights=(), workers=(), quarantined={}, deaths=0),
        storage_errors=0,
    )
    service = MetricsService(
        live=live,
        counters=counters,
        op_times={},
        op_counts=Metrics(),
        store=store,
        clock=RealClock(),
        vitals=lambda: vitals,
        open_incidents=OpenIncidents(store.incidents),
        tallies=dict,
    )
    return service, vitals


async def worst_pause(work: Callable[[], Awaitable[object]], times: int) -> tuple[float, float]:
    """Return the longest time for which the loop stood still, and how long one piece of work took."""
    heart = Heartbeat()
    beating = asyncio.get_running_loop().create_task(heart.beat())
    began = time.perf_counter()
    for _ in range(times):
        await work()
    took = (time.perf_counter() - began) / times
    beating.cancel()
    return heart.worst_s, took


def usual_way(jobs: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    due = Counter("due", "Due.", ["job"], registry=registry)
    started = Counter("started", "Started.", ["job"], registry=registry)
    ended = Counter("ended", "Ended.", ["job", "outcome"], registry=registry)
    for number in range(jobs):
        job = f"job{number}"
        due.labels(job).inc()
        started.labels(job).inc()
        for outcome in OUTCOMES:
            ended.labels(job, outcome.value).inc()
    return registry


async def compare(jobs: int, times: int) -> dict[str, float]:
    service, vitals = await open_service(jobs)
    texts: list[bytes] = []

    async def scrape() -> None:
        meters = await service.measure(view_health(vitals, ()))
        texts[:] = [(await asyncio.to_thread(write, meters, "", compressed=False))[0]]

    await scrape()
    pause, took = await worst_pause(scrape, times)
    began = time.perf_counter()
    for _ in range(times):
        await service.measure(view_health(vitals, ()))
    copied = (time.perf_counter() - began) / times
    registry = usual_way(jobs)

    async def usual_scrape() -> None:
        await asyncio.sleep(BEAT_S)
        generate_latest(registry)

    usual_pause, _ = await worst_pause(usual_scrape, times)
    await service.store.close()
    return {
        "pause": pause * 1000,
        "took": took * 1000,
        "copied": copied * 1000,
        "usual": usual_pause * 1000,
        "size": len(texts[0]) / 1024,
    }


def main() -> None:
    effort = read_effort(__doc__)
    jobs = effort.of(JOBS, 20)
    tune_interpreter()  # as the daemon does
    rounds = [asyncio.run(compare(jobs, effort.of(20, 1))) for _ in range(effort.rounds)]
    found = {name: median(each[name] for each in rounds) for name in rounds[0]}
    peer = "prometheus-client, on the loop"
    rows = [
        Row(
            figure="longest pause of the loop",
            ours=found["pause"],
            unit="ms",
            peer=peer,
            theirs=found["usual"],
            limit=50,
        ),
        Row(figure="on the loop, in slices", ours=found["copied"], unit="ms", limit=50),
        Row(figure="a scrape, from end to end", ours=found["took"], unit="ms"),
        Row(figure="its text", ours=found["size"], unit="KB"),
    ]
    show(f"/metrics with {jobs} jobs of four outcomes each", effort, rows)


if __name__ == "__main__":
    main()
