"""Measure what a store op costs a script: from Lua in a worker, through the daemon, into SQLite and back.

Jobs alternate store_set and store_get, each waiting for the answer, on two workers.  The peers do the same on a file of
their own with the same pragmas: one thread of sqlite3 committing each statement, tasks on aiosqlite, and the naive
design, which steps lupa on the event loop (with our store behind it; a script that hangs takes all of it down).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop
from lupa import lua54

from benchmarks.engine import make_job, open_engine
from benchmarks.place import folder
from benchmarks.plain_stores import GROWTH, plain_aiosqlite, plain_sqlite3
from benchmarks.table import Effort, Row, median, read_effort, show
from spyweb.clock import RealClock
from spyweb.model import Durability
from spyweb.store.sqlite.store import Store, open_store

CROWDS = {1: 300, 8: 100, 64: 60, 512: 15}  # jobs → pairs of ops of each
QUICK = {1: 5, 8: 3, 64: 2}

OURS = b"""
function run(ctx)
    for i = 1, ctx.pairs do store_set("k" .. i % 10, i .. ":" .. os.clock()) store_get("k" .. i % 10) end
end
"""
NAIVE = """
local ask = coroutine.yield
return function(pairs)
    for i = 1, pairs do ask("set", "k" .. i % 10, i .. ":" .. os.clock()) ask("get", "k" .. i % 10) end
end
"""

Figures = dict[str, float]  # what → microseconds an op


async def from_workers(root: Path, durability: Durability, crowds: dict[int, int]) -> Figures:
    figures = {}
    async with open_engine(root, durability=durability) as engine:
        await engine.runtime.store.values.set("", b"", GROWTH)
        for jobs, pairs in crowds.items():
            crowd = [make_job(f"of{jobs}-{number}", OURS) for number in range(jobs)]
            await engine.call_all(crowd, {"pairs": 1})  # makes their VMs
            figures[f"ours, {jobs}"] = await engine.call_all(crowd, {"pairs": pairs}) / (jobs * pairs * 2) * 1e6
    return figures


async def on_the_loop(root: Path, durability: Durability, crowds: dict[int, int]) -> Figures:
    figures = {}
    store = await open_store(root / "naive.db", clock=RealClock(), durability=durability)
    await store.values.set("", b"", GROWTH)
    for jobs, pairs in crowds.items():
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(jobs):
                tasks.create_task(step_naively(store, f"job:{number}", pairs))
        figures[f"lupa on the loop, {jobs}"] = (time.perf_counter() - began) / (jobs * pairs * 2) * 1e6
    await store.close()
    return figures


async def step_naively(store: Store, namespace: str, pairs: int) -> None:
    runtime = lua54.LuaRuntime(encoding=None)  # type: ignore[call-arg]  # its types are published for older versions
    script = runtime.execute(NAIVE).coroutine(pairs)  # type: ignore[attr-defined]
    answer: object = None
    while True:
        try:
            what, key, *value = script.send(answer)
        except StopIteration:
            return
        if what == b"set":
            await store.values.set(namespace, key, value[0])
        else:
            answer = await store.values.get(namespace, key)


async def one_round(durability: Durability, crowds: dict[int, int]) -> Figures:
    with folder() as root:
        plain = [
            *await plain_sqlite3(root / "plain.db", durability),
            *await plain_aiosqlite(root / "aiosqlite.db", durability),
        ]
        return {
            **{what: seconds * 1e6 for what, seconds in plain},
            **await from_workers(root, durability, crowds),
            **await on_the_loop(root, durability, crowds),
        }


def rows_of(durability: Durability, crowds: Sequence[int], us: Figures) -> list[Row]:
    rows = []
    for jobs in crowds:
        figure, ours = f"{durability.value.upper()}, {jobs} jobs", us[f"ours, {jobs}"]
        reach = {Durability.FULL: 2.5, Durability.NORMAL: 0.5}[durability] if jobs == 64 else None
        rows.append(Row(figure=figure, ours=ours, unit="us", peer="sqlite3 autocommit, 1 thread",
                        theirs=us["sqlite3, write/read"], faster=True, reach=reach))  # fmt: skip
        if jobs == 64:
            rows.append(Row(figure=figure, ours=ours, unit="us", peer="aiosqlite, 64 tasks",
                            theirs=us["aiosqlite, write/read, 64 callers"], faster=True,
                            reach=2 if durability is Durability.FULL else 1))  # fmt: skip
        if jobs == 1:
            rows.append(Row(figure=figure, ours=ours, unit="us", peer="aiosqlite, 1 task",
                            theirs=us["aiosqlite, write/read, 1 caller"], reach=3))  # fmt: skip
        rows.append(Row(figure=figure, ours=ours, unit="us", peer="lupa on the event loop",
                        theirs=us[f"lupa on the loop, {jobs}"]))  # fmt: skip
    return rows


def measure(durability: Durability, crowds: dict[int, int], effort: Effort) -> Figures:
    rounds = [uvloop.run(one_round(durability, crowds)) for _ in range(effort.rounds)]
    return {what: median(figures[what] for figures in rounds) for what in rounds[0]}


def main() -> None:
    effort = read_effort(__doc__)
    crowds = QUICK if effort.quick else CROWDS
    rows: list[Row] = []
    for durability in Durability:
        rows += rows_of(durability, list(crowds), measure(durability, crowds, effort))
    show("Store ops from Lua: time an op, 2 workers", effort, rows)


if __name__ == "__main__":
    main()
