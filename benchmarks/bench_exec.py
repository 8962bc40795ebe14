"""Measure what a command costs: `true` through a shell, one after another, and 100 at once.

In a process of the daemon's size, by the part of the daemon that runs commands.  The peer is asyncio's
`create_subprocess_shell` in the same process, on the loop of the standard library and on uvloop, which the daemon runs
on.  Beside 100 at once, how long the loop stood still.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable

import uvloop

from benchmarks.table import Effort, Row, median, read_effort, show
from spyweb.clock import RealClock
from spyweb.commands.programs import SHELL, base_environment, find_program
from spyweb.commands.runner import CommandLimits, CommandRunner
from spyweb.commands.running import Command

BALLAST = 40 << 20  # bytes; with the interpreter and its modules, what a daemon has
THREADS = 8
AT_ONCE = 100
TICK_S = 0.0005

Figures = dict[str, float]  # what → milliseconds
Run = Callable[[], Awaitable[object]]


async def theirs() -> None:
    process = await asyncio.create_subprocess_shell("true", stdout=PIPE, stderr=PIPE)
    await process.communicate()


def ours(runner: CommandRunner) -> Run:
    async def run() -> None:
        program, version = find_program(SHELL, b"/")
        command = Command(
            program=program,
            version=version,
            arguments=[program, b"-c", b"true"],
            environment=base_environment(),
            workdir=b"/",
            timeout_s=60,
            kept=1 << 20,
            tell=lambda _stream, _line: None,
        )
        await runner.run(command)

    return run


async def timed_ms(run: Run) -> float:
    began = time.perf_counter()
    await run()
    return (time.perf_counter() - began) * 1e3


async def crowd_ms(run: Run) -> tuple[float, float]:
    """Run 100 at once; return how long that took, and the longest time for which the loop stood still."""
    held = 0.0
    done = False

    async def watch() -> None:
        nonlocal held
        while not done:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            held = max(held, time.perf_counter() - began - TICK_S)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        await asyncio.sleep(0)
        began = time.perf_counter()
        await asyncio.gather(*(run() for _ in range(AT_ONCE)))
        took = time.perf_counter() - began
        done = True
    return took * 1e3, held * 1e3


async def measured(effort: Effort, name: str) -> Figures:
    runner = CommandRunner(RealClock(), CommandLimits())
    runs = {"ours": ours(runner), "theirs": theirs}
    for run in runs.values():
        await run()  # warm
    singles: dict[str, list[float]] = {who: [] for who in runs}
    for _ in range(effort.of(100, 10)):  # in turns: a machine that varies within seconds would decide
        for who, run in runs.items():
            singles[who].append(await timed_ms(run))
    figures = {f"{who}, one, {name}": median(times) for who, times in singles.items()}
    for who, run in runs.items():
        crowds = [await crowd_ms(run) for _ in range(effort.of(3, 1))]
        figures[f"{who}, crowd, {name}"] = median(took for took, _ in crowds)
        figures[f"{who}, held, {name}"] = median(held for _, held in crowds)
    await runner.close()
    return figures


def one_round(effort: Effort) -> Figures:
    ballast = os.urandom(1 << 20) * (BALLAST >> 20)
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        figures = asyncio.run(measured(effort, "asyncio"))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            figures |= loop.run(measured(effort, "uvloop"))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(ballast) == BALLAST
    return figures


def rows_of(figures: Figures) -> list[Row]:
    rows = []
    for name in ("asyncio", "uvloop"):
        promised = name == "asyncio"
        peer = f"create_subprocess_shell, {name}"
        rows.append(Row(figure=f"`true`, {name}", ours=figures[f"ours, one, {name}"], unit="ms", peer=peer,
                        theirs=figures[f"theirs, one, {name}"], reach=2 if promised else None))  # fmt: skip
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
