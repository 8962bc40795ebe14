"""Measure what incidents cost: a healthy run, thousands of open incidents, ten thousand jobs that fail at once.

The peer of a healthy run is the same run without alerts, alternately in the same daemon; the peer of a write during a
plan or a storm is the same write while nothing else happens.  The receiver is a separate process.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from msgspec.structs import replace

from benchmarks.command import Daemon, running
from benchmarks.engine import Engine, make_job, open_engine, small_jobs, tuned
from benchmarks.place import folder
from benchmarks.processes import command_line, family, pss_bytes
from benchmarks.servers import started
from benchmarks.table import Effort, Row, median, percentile, read_effort, show
from spyweb.cli.client import find_daemon
from spyweb.clock import RealClock
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import Event, Failed, Succeeded
from spyweb.model import Durability, Outcome, Run, RunId, RunState, Trigger
from spyweb.runs.live import LiveJob
from spyweb.store.model.entries import Put
from spyweb.store.model.incidents import AlertChannelNow, SubjectEvent, SubjectNow
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.store.sqlite.store import Store, open_store

MB = 1 << 20
JOBS, RATE = 100, 1000  # healthy ones, and their runs a second
INCIDENTS = 10_000
TIMES = 20_000  # that one run is judged, where that is timed alone
AT_ONCE = 500  # ends of runs that share a commit
POLICY = AlertPolicy(to=("ops",), after_failures=1)
IDLE = '[channels.ops]\nurl = "ntfy://example.org/topic"\n[alerts]\nto = ["ops"]\n'
HELPER = "spyweb.alerts.sender"
PATIENCE = 90.0  # seconds; a deadline for a hang, not a measure
BEAT_S = 0.0005


@dataclass(slots=True)
class Heartbeat:
    """Beats on the loop, and records the longest pause between two beats."""

    worst_s: float = 0.0

    async def beat(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(BEAT_S)
            self.worst_s = max(self.worst_s, time.perf_counter() - began - BEAT_S)


async def worst_pause(work: Callable[[], Awaitable[object]], times: int) -> tuple[float, float]:
    """Return the longest time for which the loop was blocked, and how long one piece of work took."""
    heart = Heartbeat()
    beating = asyncio.get_running_loop().create_task(heart.beat())
    began = time.perf_counter()
    for _ in range(times):
        await work()
    took = (time.perf_counter() - began) / times
    beating.cancel()
    return heart.worst_s, took


class ShiftedClock(RealClock):
    """Runs ahead of the real time."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@dataclass
class Beside:
    """Writes a value again and again, and notes how long each took."""

    store: Store
    waits_ms: list[float] = field(default_factory=list)

    async def write(self) -> None:
        while True:
            began = time.perf_counter()
            await self.store.values.transform("job:other", b"n", lambda _: Put(b"1"))
            self.waits_ms.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(0.001)

    async def during(self, work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
        """Return the p99 of a write during some work, and the longest."""
        self.waits_ms.clear()
        writing = asyncio.get_running_loop().create_task(self.write())
        try:
            await work()
            await asyncio.sleep(0.1)
        finally:
            writing.cancel()
        return percentile(self.waits_ms, 0.99), max(self.waits_ms)


# A healthy run


async def healthy(windows: int, seconds: float) -> tuple[float, float, float]:
    """Return the microseconds of processor time of a run with alerts, without them, and of the alerts alone."""
    with folder() as root:
        config = '[channels.ops]\nwebhook = "http://127.0.0.1:9/"\n[alerts]\nto = ["ops"]\n'
        async with open_engine(root, is_timed=True, config=config) as engine:
            jobs = small_jobs(JOBS, RATE)
            engine.add(jobs)
            await engine.daemon.alerts.load()
            await engine.run_all(jobs)
            await engine.go()
            await asyncio.sleep(seconds)
            judges = (engine.runtime.runner.judge, lambda *_: None)
            found: tuple[list[float], list[float]] = ([], [])
            for window in range(2 * windows):
                # In the order of ABBA, so that a machine that gets slower is slow for both.
                which = (window + window // 2) % 2
                engine.runtime.runner.judge = judges[which]
                found[which].append(await cpu_of_a_run(engine, seconds))
            engine.runtime.runner.judge = judges[0]
            return median(found[0]), median(found[1]), judging(engine, jobs[0])


def judging(engine: Engine, job: LiveJob) -> float:
    run = Run(id=RunId(1), job=job.id, state=RunState.RUNNING, trigger=Trigger(type="schedule"))
    end = End(run=run.id, ended_ms=1, outcome=Outcome.SUCCESS)
    began = time.thread_time()
    for _ in range(TIMES):
        engine.runtime.runner.judge(job, run, end)
    return (time.thread_time() - began) / TIMES * 1e6


async def cpu_of_a_run(engine: Engine, seconds: float) -> float:
    engine.lateness.take()
    cpu = engine.cpu()
    await asyncio.sleep(seconds)
    return (engine.cpu() - cpu) / len(engine.lateness.take()) * 1e6


# Thousands of open incidents


async def planning(incidents: int) -> dict[str, tuple[float, float]]:
    """Return the longest wait of a write beside each plan, and the longest pause of the loop."""
    with folder() as root, tuned():
        clock = ShiftedClock()
        store = await open_store(root / "spyweb.db", clock=clock, durability=Durability.NORMAL)
        subjects = {f"job:job{number}": SubjectNow(policy=POLICY) for number in range(incidents)}
        channels = [AlertChannelNow(name="ops")]
        beside, found = Beside(store), {}

        async def look(figure: str, work: Callable[[], Awaitable[object]]) -> None:
            longest = 0.0

            async def all_of_it() -> None:
                nonlocal longest
                _, longest = await beside.during(work)

            pause, _ = await worst_pause(all_of_it, 1)
            found[figure] = longest, pause * 1e3

        async def plan() -> None:
            await store.incidents.plan(channels, subjects)

        await look("nothing", lambda: asyncio.sleep(1))
        await note(store, subjects, Failed("no space"), clock.now_ms())
        clock.ahead_ms += 10_000
        await look("due at once", plan)
        await look("open, nothing due", plan)
        await note(store, subjects, Succeeded(), clock.now_ms())
        clock.ahead_ms += 70_000
        await look("over at once", plan)
        await store.close()
        return found


async def note(store: Store, subjects: dict[str, SubjectNow], event: Event, now_ms: int) -> None:
    names = list(subjects)
    for at in range(0, len(names), AT_ONCE):
        some = names[at : at + AT_ONCE]
        await store.incidents.note(
            [SubjectEvent(subject=name, event=event, policy=POLICY, at_ms=now_ms) for name in some]
        )


# Ten thousand jobs that fail at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    messages: int
    told_of: int  # incidents
    took_s: float  # until the last message had come
    late_ms: tuple[float, float]  # a write meanwhile: p99, and the longest
    calm_ms: tuple[float, float]  # before


async def storm(failing: int) -> Storm:
    with folder() as root, started("benchmarks.alert_receiver") as url:
        config = f'[channels.ops]\nwebhook = "{url}/ops"\n[alerts]\nto = ["ops"]\n'
        async with at_work(root, config) as engine:
            jobs = [make_job(f"job{number}", b"", alerts=POLICY) for number in range(failing)]
            engine.add(jobs)
            runs = await begin(engine.runtime.store, jobs)
            beside = Beside(engine.runtime.store)
            calm = await beside.during(lambda: asyncio.sleep(1))
            began = time.perf_counter()

            async def fail_and_be_told() -> None:
                await fail(engine, jobs, runs)
                while sum(each["message"]["count"] for each in await arrivals(url)) < failing:
                    if time.perf_counter() - began > PATIENCE:
                        raise TimeoutError(await arrivals(url))
                    await asyncio.sleep(0.1)

            late = await beside.during(fail_and_be_told)
            took = time.perf_counter() - began
            arrived = await arrivals(url)
            told_of = sum(each["message"]["count"] for each in arrived)
            return Storm(messages=len(arrived), told_of=told_of, took_s=took, late_ms=late, calm_ms=calm)


@asynccontextmanager
async def at_work(root: Path, config: str) -> AsyncIterator[Engine]:
    """Open an engine that plans notifications and sends them."""
    async with open_engine(root, durability=Durability.NORMAL, config=config) as engine:
        await engine.daemon.alerts.load()
        work = (engine.daemon.alerts.keep_up(), engine.runtime.outbox_sender.deliver())
        tasks = [asyncio.get_running_loop().create_task(each) for each in work]
        try:
            yield engine
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def begin(store: Store, jobs: Sequence[LiveJob]) -> list[RunId]:
    now_ms = RealClock().now_ms()
    new = [
        NewRun(job=job.id, state=RunState.RUNNING, trigger=Trigger(type="manual"), started_ms=now_ms) for job in jobs
    ]
    return [run for run in await store.runs.record(Change(new=new)) if run is not None]


async def fail(engine: Engine, jobs: Sequence[LiveJob], runs: Sequence[RunId]) -> None:
    """Record the ends of these runs as a runner does, many in a commit."""
    now_ms = RealClock().now_ms()
    for at in range(0, len(jobs), AT_ONCE):
        ends = []
        for job, number in zip(jobs[at : at + AT_ONCE], runs[at : at + AT_ONCE], strict=True):
            end = End(run=number, ended_ms=now_ms, outcome=Outcome.FAILED, reason="no space")
            run = Run(id=number, job=job.id, state=RunState.RUNNING, trigger=Trigger(type="manual"))
            ends.append(replace(end, alert=engine.daemon.alerts.judge(job, run, end)))
        await engine.runtime.store.runs.record(Change(end=ends))


async def arrivals(url: str) -> list[Any]:
    return await asyncio.to_thread(look_up, f"{url}/arrived")


def look_up(url: str) -> list[Any]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: list[Any] = json.load(answer)
    return found


# A daemon of its own


def memory_of_an_idle_daemon(config: str, *, waits: bool) -> float:
    """Return its megabytes once the process that checked its channels at the start has ended."""
    with folder() as root:
        (root / "config.toml").write_text(config)
        (root / "jobs").mkdir()
        with running(root) as daemon:
            time.sleep(1)
            if waits:
                wait_until_gone(daemon)
            return sum(map(pss_bytes, family(daemon.pid))) / MB


def wait_until_gone(daemon: Daemon) -> float:
    """Return the seconds until the process that sends to services has ended."""
    began = time.perf_counter()
    while list(helpers(daemon)) and time.perf_counter() - began < PATIENCE:
        time.sleep(0.2)
    return time.perf_counter() - began


def helper(*, waits: bool) -> tuple[float, float]:
    """Return the megabytes of the process that sends to services, and the seconds until it has ended."""
    with folder() as root, started("benchmarks.alert_receiver") as url:
        address = url.replace("http://", "ntfy://")
        (root / "config.toml").write_text(f'[channels.phone]\nurl = "{address}/topic"\n')
        (root / "jobs").mkdir()
        with running(root) as daemon:
            client = find_daemon(root / "data")
            assert client
            client.ask("POST", "/api/channels/phone/test", dict)
            taken = sum(pss_bytes(pid) for pid in helpers(daemon)) / MB
            return taken, wait_until_gone(daemon) if waits else 0


def helpers(daemon: Daemon) -> Iterator[int]:
    return (pid for pid in family(daemon.pid) if HELPER in command_line(pid))


def seconds_to_the_receiver(channels: int, jobs: int) -> list[float]:
    """Return how long after the opening of each incident the request came, where few open at a time."""
    with folder() as root, started("benchmarks.alert_receiver") as url:
        names = [f"channel{number}" for number in range(channels)]
        (root / "config.toml").write_text("".join(f'[channels.{name}]\nwebhook = "{url}/{name}"\n' for name in names))
        (root / "jobs").mkdir()
        for number in range(channels * jobs):
            every, to = 1000 + 211 * number, names[number % channels]
            head = f'every = "{every}ms"\n-- alerts = {{ to = ["{to}"], after_failures = 1 }}'
            (root / "jobs" / f"job{number}.lua").write_text(f"-- /// job\n-- {head}\n-- ///\nerror('no space')")
        with running(root):
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                arrived = look_up(f"{url}/arrived")
                items = [(each["at_ms"], item) for each in arrived for item in each["message"]["items"]]
                if len(items) >= channels * jobs:
                    break
                time.sleep(0.2)
            return [(at_ms - item["opened_ms"]) / 1e3 for at_ms, item in items]


def rows_of(effort: Effort) -> Iterator[Row]:
    count, is_whole = effort.of(INCIDENTS, 200), not effort.quick
    judged, unjudged, alone = uvloop.run(healthy(effort.of(4 * effort.rounds, 1), 1.5 if is_whole else 0.3))
    peer = "judged by nobody"
    yield Row(figure="processor time of a healthy run", ours=judged, unit="us", peer=peer, theirs=unjudged, reach=1.02)
    yield Row(figure="its alerts, timed alone", ours=alone, unit="us", peer="the run", theirs=unjudged, reach=0.02)
    plans = [uvloop.run(planning(count)) for _ in range(effort.rounds)]
    peer = "nothing to plan"
    for when in ("due at once", "open, nothing due", "over at once"):
        for at, what in enumerate(("a write waits, longest", "the loop's pause, longest")):
            ours, theirs = (median(each[name][at] for each in plans) for name in (when, "nothing"))
            figure = f"{count:,} incidents {when}: {what}"
            yield Row(figure=figure, ours=ours, unit="ms", peer=peer, theirs=theirs, limit=50)
    seen, what = uvloop.run(storm(count)), f"{count:,} jobs fail at once"
    yield Row(figure=f"{what}: messages", ours=seen.messages, unit="", limit=1)
    yield Row(figure=f"{what}: until the last arrived", ours=seen.took_s, unit="s", limit=15)
    for measure, late, calm in zip(("p99", "longest"), seen.late_ms, seen.calm_ms, strict=True):
        figure = f"{what}: a write waits, {measure}"
        yield Row(figure=figure, ours=late, unit="ms", peer="before", theirs=calm, limit=50)
    idle = memory_of_an_idle_daemon(IDLE, waits=is_whole)
    without = memory_of_an_idle_daemon("", waits=is_whole)
    yield Row(figure="an idle daemon with a channel", ours=idle, unit="MB", peer="without", theirs=without, reach=1.02)
    taken, gone_s = helper(waits=is_whole)
    yield Row(figure="the process that sends", ours=taken, unit="MB", limit=70)
    yield Row(figure="it has ended after", ours=gone_s, unit="s", limit=35)
    waits = seconds_to_the_receiver(effort.of(10, 1), effort.of(5, 2))
    yield Row(figure="from the opening to the request, p99", ours=percentile(waits, 0.99), unit="s", limit=10)


def main() -> None:
    effort = read_effort(__doc__)
    show("Alerts", effort, list(rows_of(effort)))


if __name__ == "__main__":
    main()
