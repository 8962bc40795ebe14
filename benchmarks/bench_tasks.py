"""Measure what tasks cost a run: a thousand that do nothing, one after the other and ten side by side.

The peer is a script that makes as many protected calls in a loop, and stores a key after each: what the end of a task
is for the disk.  Processor time is that of the daemon and its worker.  What a branch costs, bench_branches.py says.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import uvloop

from benchmarks.engine import Engine, make_job, open_engine
from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, read_effort, show
from spyweb.model import Durability
from spyweb.runs.live import LiveJob

COUNT, QUICK_COUNT = 1000, 20
PEER = "a loop of protected calls that store a key each"
SCRIPTS: Mapping[str, str] = {
    "loop": """
local n = 0
function run() for i = 1, %(count)d do pcall(function() n = n + 1 end) store_set("t" .. i, "success") end end
""",
    "tasks": """
local n, names = 0, {}
for i = 1, %(count)d do names[i] = "t" .. i task(names[i]):command(function() n = n + 1 end) end
""",
    "side by side": """
local n, names = 0, {}
for i = 1, %(count)d do names[i] = "t" .. i task(names[i]):command(function() n = n + 1 end) end
workflow("w"):tasks(names):config{max_parallel_tasks = 10}
""",
}


async def measure(root: Path, durability: Durability, count: int, rounds: int) -> dict[str, float]:
    """Return seconds, and of processor time, of each script: the median of some rounds, by turns."""
    seen: dict[str, list[float]] = {}
    async with open_engine(root, durability=durability, workers=1) as engine:
        sources = {what: (text % {"count": count}).encode() for what, text in SCRIPTS.items()}
        jobs = {what: make_job(what.replace(" ", "-"), source) for what, source in sources.items()}
        for round_number in range(rounds + 1):
            for what, job in jobs.items():
                took, cpu = await take_time(engine, job)
                if round_number:  # the first makes their VMs
                    seen.setdefault(what, []).append(took)
                    seen.setdefault(f"{what}, cpu", []).append(cpu)
    return {what: median(values) for what, values in seen.items()}


async def take_time(engine: Engine, job: LiveJob) -> tuple[float, float]:
    began, cpu = time.perf_counter(), engine.cpu()
    await engine.call(job, {})
    return time.perf_counter() - began, engine.cpu() - cpu


async def main(effort: Effort) -> None:
    count = effort.of(COUNT, QUICK_COUNT)
    with folder() as root:
        of = {}
        for durability in (Durability.FULL, Durability.NORMAL):
            place = root / durability.value
            place.mkdir()
            of[durability] = await measure(place, durability, count, effort.rounds)
    full, normal = of[Durability.FULL], of[Durability.NORMAL]

    def row(
        figure: str, of: dict[str, float], what: str, *, reach: float | None = None, limit: float | None = None
    ) -> Row:
        ours, theirs = of[what] * 1e3, of["loop, cpu" if what.endswith("cpu") else "loop"] * 1e3
        return Row(figure=figure, ours=ours, theirs=theirs, unit="ms", peer=PEER, reach=reach, limit=limit)

    rows = [
        row("processor time", normal, "tasks, cpu", reach=3),
        row("one by one, full", full, "tasks", limit=1000),
        row("one by one, normal", normal, "tasks"),
        row("ten side by side, full", full, "side by side", limit=250),
        row("ten side by side, normal", normal, "side by side"),
    ]
    show(f"A run of {count:,} tasks that do nothing", effort, rows)


if __name__ == "__main__":
    uvloop.run(main(read_effort(__doc__)))
