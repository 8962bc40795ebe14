"""Measure the overview of 1,000 jobs with 100 runs each on record: the first look, later ones, and what is kept for it.

The peer is the plain way: the rows of the newest 40 runs of each job, read and counted anew at each look.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from pathlib import Path

from benchmarks.bench_metrics import worst_pause
from benchmarks.table import Row, median, read_effort, show
from spyweb.clock import RealClock
from spyweb.daemon.serve import tune_interpreter
from spyweb.lua.session import Code, PoolStats
from spyweb.model import Cursor, Durability, JobId, JobSpec, Outcome, RunId, RunState, Trigger
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.schedules.due import upcoming
from spyweb.service.overview import OverviewService
from spyweb.service.strips import SHOWN_RUNS
from spyweb.store.protocol import Change, End, NewRun
from spyweb.store.sqlite.store import SqliteStore, open_store
from spyweb.views.health import Vitals, view_health
from spyweb.views.jobs import JobFacts, JobView, view_job
from spyweb.views.strips import mark_of, median_ms, took_of

JOBS, RUNS = 1_000, 100
PERIOD_MS = 60_000


def live_job(number: int) -> LiveJob:
    job = JobId(f"job{number}")
    spec = JobSpec(id=job, name=job, path=f"jobs/{job}.lua", folder=f"jobs/{job}")
    code = Code(job=job, generation=1, chunk=spec.path, source=b"")
    return LiveJob(spec=spec, code=code, digest="", cursor=Cursor(job=job, due_ms=0, schedule=""))


async def record_runs(store: SqliteStore, live: LiveJobs, runs: int) -> None:
    """Put the runs of all jobs on record, in the order in which a daemon would: one of each job after the other."""
    for number in range(runs):
        due_ms = number * PERIOD_MS
        new = [
            NewRun(
                job=job.id, state=RunState.RUNNING, trigger=Trigger(type="schedule"), due_ms=due_ms, started_ms=due_ms
            )
            for job in live
        ]
        ids = await store.runs.record(Change(new=new))
        outcomes = [Outcome.FAILED if (number + at) % 37 == 0 else Outcome.SUCCESS for at in range(len(ids))]
        ends = [
            End(run=RunId(run or 0), ended_ms=due_ms + 900, outcome=outcome, reason="boom")
            for run, outcome in zip(ids, outcomes, strict=True)
        ]
        await store.runs.record(Change(end=ends))


def view(job: LiveJob) -> JobView:
    facts = JobFacts(cursor=job.cursor, next_due_ms=next(upcoming(job.spec, job.cursor.due_ms), None), last=job.last)
    return view_job(job.spec, facts)


def make_service(store: SqliteStore, live: LiveJobs) -> OverviewService:
    vitals = Vitals(
        version="0",
        pid=1,
        uptime_s=1,
        scheduler_lag_ms=0,
        store=store.stats(),
        pool=PoolStats(rights=(), workers=(), quarantined={}, deaths=0),
        storage_errors=0,
    )
    return OverviewService(
        live=live,
        runs=store.runs,
        past_runs=store.past_runs,
        clock=RealClock(),
        view=view,
        broken=lambda: (),
        health=lambda: view_health(vitals, ()),
    )


async def plain_way(store: SqliteStore, live: LiveJobs) -> None:
    for job in live:
        newest = await store.runs.list(job.id, limit=SHOWN_RUNS)
        "".join(mark_of(run) for run in newest)
        median_ms([took_of(run) or 0 for run in newest])
        view(job)


async def compare(jobs: int, runs: int) -> dict[str, float]:
    live = LiveJobs()
    for number in range(jobs):
        live.add(live_job(number))
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(Path(folder) / "spyweb.db", clock=RealClock(), durability=Durability.NORMAL)
        await record_runs(store, live, runs)
        latest = await store.runs.latest()
        for job in live:
            job.last = latest.get(job.id)
        gc.collect()
        gc.freeze()
        service = make_service(store, live)
        pause, first = await worst_pause(service.look, 1)
        _, later = await worst_pause(service.look, 5)
        began = time.perf_counter()
        await plain_way(store, live)
        plain = time.perf_counter() - began
        tracemalloc.start()
        other = make_service(store, live)
        await other.look()
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await store.close()
    return {
        "pause": pause * 1000,
        "first": first * 1000,
        "later": later * 1000,
        "plain": plain * 1000,
        "kept": kept / (1 << 20),
    }


def main() -> None:
    effort = read_effort(__doc__)
    jobs, runs = effort.of(JOBS, 20), effort.of(RUNS, 5)
    tune_interpreter()  # as the daemon does
    rounds = [asyncio.run(compare(jobs, runs)) for _ in range(effort.rounds)]
    found = {name: median(each[name] for each in rounds) for name in rounds[0]}
    peer = "rows read anew"
    rows = [
        Row(figure="the first look", ours=found["first"], unit="ms", peer=peer, theirs=found["plain"], limit=150),
        Row(figure="the longest pause of the loop in it", ours=found["pause"], unit="ms", limit=20),
        Row(figure="a later look", ours=found["later"], unit="ms", peer=peer, theirs=found["plain"], limit=50),
        Row(figure="kept while somebody looks", ours=found["kept"], unit="MB", limit=5),
    ]
    show(f"the overview of {jobs} jobs with {runs} runs each", effort, rows)


if __name__ == "__main__":
    main()
