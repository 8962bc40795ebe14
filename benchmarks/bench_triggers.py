"""Measure the time from a write to the job that it starts, beside a manual start.

Durable (the write, then the claim of the run, committed with synchronous = FULL) and real: the handler is Lua, in
workers.  A start is measured from the moment a write is asked for to the arrival of the handler's first op.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import uvloop

from benchmarks.engine import Engine, make_job, open_engine, overheard, small_jobs
from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, percentile, read_effort, show
from spyweb.model import On, Trigger, TriggerType
from spyweb.ops.world import Call
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import RunRequest
from spyweb.store.model.entries import Put, scope_namespace

SIGN = "store_get"  # the handler's first op
HANDLER = b"function on_state(event) store_get('id:' .. event.new_value) end function run() store_get('id:-1') end"
PACE = 0.02  # seconds between two writes


@dataclass(slots=True)
class Starts:
    """Notes when each handler began to run, in milliseconds since its write was asked for."""

    asked: dict[int, float] = field(default_factory=dict)
    seen: list[float] = field(default_factory=list)
    expected: int = 0
    all_seen: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self, number: int) -> None:
        self.asked[number] = time.perf_counter()

    def note(self, number: int) -> None:
        self.seen.append((time.perf_counter() - self.asked[number]) * 1000)
        if len(self.seen) == self.expected:
            self.all_seen.set()

    async def take(self, count: int, step: Callable[[int], object], pace: float) -> list[float]:
        """Write so many times, and wait for the run that each starts."""
        self.asked, self.seen, self.expected = {}, [], count
        self.all_seen.clear()
        for number in range(count):
            self.ask(number)
            step(number)
            if pace:
                await asyncio.sleep(pace)
        async with asyncio.timeout(60):
            await self.all_seen.wait()
        return self.seen


@contextmanager
def listening(starts: Starts) -> Iterator[None]:
    def note(_call: Call, key: bytes) -> None:
        if key.startswith(b"id:"):
            number = int(key[3:])
            starts.note(number if number >= 0 else len(starts.seen))

    with overheard(SIGN, note):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    engine: Engine
    starts: Starts
    jobs: list[LiveJob]

    def write(self, number: int) -> None:
        """Write a new value to one of the keys."""
        values = self.engine.runtime.store.values
        values.transform(f"scope:s{number % len(self.jobs)}", b"k%d" % (number % 7), lambda _: Put(number))

    def start(self, number: int) -> None:
        trigger = Trigger(type=TriggerType.MANUAL)
        self.engine.runtime.runner.start(
            self.jobs[number % len(self.jobs)], [RunRequest(trigger=trigger, made_up_for=True)]
        )


@asynccontextmanager
async def open_bench(listeners: int) -> AsyncIterator[Bench]:
    with folder() as root:
        async with open_engine(root) as engine:
            jobs = [make_job(f"on{n}", HANDLER, on=(On(namespace=scope_namespace(f"s{n}")),)) for n in range(listeners)]
            engine.add(jobs)
            engine.runtime.live.link()
            handing_out = engine.runtime.tasks.create_task(engine.daemon.triggers.deliver())
            starts = Starts()
            with listening(starts):
                bench = Bench(engine=engine, starts=starts, jobs=jobs)
                await starts.take(listeners, bench.write, 0)  # a job's VM is made at its first run
                yield bench
            engine.daemon.triggers.stop()
            handing_out.cancel()


def late(starts: list[float]) -> float:
    return percentile(starts, 0.99)


async def quiet(effort: Effort) -> tuple[list[list[float]], list[list[float]]]:
    """Measure writes and manual starts alternately."""
    changes, hands = [], []
    async with open_bench(10) as bench:
        for _ in range(effort.rounds):
            count = effort.of(300, 20)
            changes.append(await bench.starts.take(count, bench.write, PACE))
            hands.append(await bench.starts.take(count, bench.start, PACE))
    return changes, hands


async def beside_others(effort: Effort) -> list[float]:
    async with open_bench(10) as bench:
        others = small_jobs(100, 500)
        bench.engine.add(others)
        await bench.engine.run_all(others)
        await bench.engine.go()
        return [late(await bench.starts.take(effort.of(300, 20), bench.write, PACE)) for _ in range(effort.rounds)]


def main() -> None:
    effort = read_effort(__doc__)
    changes, hands = uvloop.run(quiet(effort))
    beside = uvloop.run(beside_others(effort))
    rows = [
        Row(figure="write to job start, median", ours=median(map(median, changes)), unit="ms",
            peer="started manually", theirs=median(map(median, hands))),
        Row(figure="write to job start, p99", ours=median(map(late, changes)), unit="ms", peer="started manually",
            theirs=median(map(late, hands)), limit=50),
        Row(figure="write to job start beside 500 runs/s, p99", ours=median(beside), unit="ms", limit=50),
    ]  # fmt: skip
    show("Changes that start jobs, FULL, 2 workers", effort, rows)


if __name__ == "__main__":
    main()
