"""Measure what a command costs: `exec.run("true")` from Lua, one after another, and 100 at once from one run.

The peer is asyncio's `create_subprocess_shell` in the same process, which has the daemon's size: on the loop of the
standard library and on uvloop, which the daemon runs on.  Beside 100 at once, how long the loop stands still.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable

import uvloop

from benchmarks.engine import make_job, open_engine
from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, read_effort, show
from spyweb.permissions.policy import Grants, Policy

AT_ONCE = 100
TICK_S = 0.0005
TURNS = 5

ONE = b'function run(ctx) for i = 1, ctx.count do assert(exec.run("true").success) end end'
CROWD = b"""
function run(ctx)
  local items = {}
  for i = 1, ctx.count do items[i] = i end
  parallel_map(items, function() assert(exec.run("true").success) end, ctx.count)
end
"""

Figures = dict[str, float]  # what → milliseconds


async def shell() -> None:
    process = await asyncio.create_subprocess_shell("true", stdout=PIPE, stderr=PIPE)
    await process.communicate()


async def shells(count: int) -> None:
    for _ in range(count):
        await shell()


async def crowd_of_shells() -> None:
    await asyncio.gather(*(shell() for _ in range(AT_ONCE)))


async def timed_ms(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


async def watched_ms(work: Awaitable[object]) -> tuple[float, float]:
    """Return how long it took, and the longest time for which the loop was blocked."""
    held = 0.0

    async def watch() -> None:
        nonlocal held
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            held = max(held, time.perf_counter() - began - TICK_S)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        await asyncio.sleep(0)
        took = await timed_ms(work)
        watching.cancel()
    return took, held * 1e3


async def measured(effort: Effort, name: str) -> Figures:
    policy = Policy(granted=Grants(exec=None))
    count = effort.of(20, 4)
    figures: Figures = {}
    with folder() as root:
        async with open_engine(root) as engine:
            one, crowd = make_job("one", ONE, policy=policy), make_job("crowd", CROWD, policy=policy)
            await engine.call_all([one, crowd], {"count": 1})  # makes their VMs
            await shell()
            singles: dict[str, list[float]] = {"ours": [], "theirs": []}
            for _ in range(effort.of(TURNS, 1)):  # in turns: a machine that varies within seconds would decide
                singles["theirs"].append(await timed_ms(shells(count)) / count)
                singles["ours"].append(await timed_ms(engine.call_all([one], {"count": count})) / count)
            figures |= {f"{who}, one, {name}": median(times) for who, times in singles.items()}
            crowds: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
            for _ in range(effort.of(TURNS, 1)):
                crowds["theirs"].append(await watched_ms(crowd_of_shells()))
                crowds["ours"].append(await watched_ms(engine.call_all([crowd], {"count": AT_ONCE})))
            for who, turns in crowds.items():
                figures[f"{who}, crowd, {name}"] = median(took for took, _ in turns)
                figures[f"{who}, held, {name}"] = median(held for _, held in turns)
    return figures


def one_round(effort: Effort) -> Figures:
    figures = asyncio.run(measured(effort, "asyncio"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return figures | loop.run(measured(effort, "uvloop"))


def rows_of(figures: Figures) -> list[Row]:
    rows = []
    for name in ("asyncio", "uvloop"):
        peer = f"create_subprocess_shell, {name}"
        rows.append(Row(figure=f'`exec.run("true")`, {name}', ours=figures[f"ours, one, {name}"], unit="ms", peer=peer,
                        theirs=figures[f"theirs, one, {name}"], reach=2))  # fmt: skip
        rows.append(Row(figure=f"{AT_ONCE} at once, {name}", ours=figures[f"ours, crowd, {name}"], unit="ms", peer=peer,
                        theirs=figures[f"theirs, crowd, {name}"]))  # fmt: skip
        rows.append(Row(figure=f"the loop is held, {name}", ours=figures[f"ours, held, {name}"], unit="ms", peer=peer,
                        theirs=figures[f"theirs, held, {name}"], limit=50))  # fmt: skip
    return rows


def main() -> None:
    effort = read_effort(__doc__)
    rounds = [one_round(effort) for _ in range(effort.rounds)]
    figures = {what: median(figures[what] for figures in rounds) for what in rounds[0]}
    show("Commands", effort, rows_of(figures))


if __name__ == "__main__":
    main()
