"""Measure a check with check = "http": its processor time, beside the same request in a plain loop and an empty run.

A check is a whole run, with four conditions, on a connection of its own.  Processor time is that of the daemon and its
workers.  Another figure is the memory that many checks leave.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from msgspec.structs import replace

from benchmarks.engine import Engine, make_job, open_engine
from benchmarks.place import folder
from benchmarks.processes import family, pss_bytes
from benchmarks.servers import started
from benchmarks.table import Effort, Row, median, read_effort, show
from spyweb.checks.settings import CheckKind, script_of
from spyweb.runs.live import LiveJob

JOBS = 50
EXPECT = ("status == 200", "latency < 60000", "body:find('item', 1, true)", "size > 100")
NOTHING = b"return 1"


def checks(address: str, count: int) -> list[LiveJob]:
    path, source = script_of(CheckKind.HTTP)
    made = []
    for number in range(count):
        values = {"url": f"{address}/job{number}", "expect": EXPECT, "timeout": 60}
        job = make_job(f"check{number}", source, check="http", values=msgspec.json.encode(values).decode())
        job.code = replace(job.code, chunk=path)
        made.append(job)
    return made


async def cpu_us(engine: Engine, jobs: Sequence[LiveJob], passes: int) -> float:
    """Return the processor time of a run."""
    engine.add(jobs)
    await engine.run_all(jobs)
    before = engine.cpu()
    for _ in range(passes):
        await engine.run_all(jobs)
    return (engine.cpu() - before) / (passes * len(jobs)) * 1e6


async def plain_us(address: str, passes: int) -> float:
    """Return the processor time of a request in a loop of aiohttp, on a connection of its own."""

    async def ask(number: int) -> None:
        async with session.get(f"{address}/job{number}", headers={"Connection": "close"}) as response:
            assert b"item" in await response.read()

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*map(ask, range(JOBS)))
        before = time.process_time()
        for _ in range(passes):
            await asyncio.gather(*map(ask, range(JOBS)))
        return (time.process_time() - before) / (passes * JOBS) * 1e6


async def ours(address: str, root: Path, passes: int) -> tuple[float, float]:
    """Return the processor time of a check, and of a run that does nothing."""
    async with open_engine(root) as engine:
        empty = [make_job(f"empty{number}", NOTHING) for number in range(JOBS)]
        return await cpu_us(engine, checks(address, JOBS), passes), await cpu_us(engine, empty, passes)


async def memory(address: str, root: Path, count: int) -> tuple[float, float]:
    """Return the bytes of all processes after a tenth of so many checks, and after all."""
    async with open_engine(root) as engine:
        jobs = checks(address, JOBS)
        passes = max(2, count // JOBS)
        await cpu_us(engine, jobs, max(1, passes // 10))
        before = held()
        for _ in range(passes - passes // 10):
            await engine.run_all(jobs)
        return before, held()


def held() -> float:
    return float(sum(map(pss_bytes, family(os.getpid()))))


def rows(address: str, effort: Effort) -> list[Row]:
    found = []
    for _ in range(effort.rounds):
        plain = uvloop.run(plain_us(address, effort.of(40, 1)))
        with folder() as root:
            found.append((*uvloop.run(ours(address, root, effort.of(40, 1))), plain))
    check, empty, plain = (median(each) for each in zip(*found, strict=True))
    count = effort.of(50_000, 2 * JOBS)
    with folder() as root:
        before, after = uvloop.run(memory(address, root, count))
    return [
        Row(figure="CPU of a check of a site", ours=check, unit="us", peer="aiohttp's request, an empty run",
            theirs=plain + empty, reach=1.5),
        Row(figure="the request alone", ours=plain, unit="us"),
        Row(figure="1,000 checks a minute, of one processor", ours=check * 1000 / 60e6 * 100, unit="%", limit=100),
        Row(figure=f"memory after {count:,} checks", ours=after / 2**20, unit="MB", peer="after a tenth of them",
            theirs=before / 2**20, reach=1.05),
    ]  # fmt: skip


def main() -> None:
    effort = read_effort(__doc__)
    with started("benchmarks.pages") as address:
        show("Checks", effort, rows(address, effort))


if __name__ == "__main__":
    main()
