"""Measure what a Lua endpoint costs: a handler that returns a text, in a separate VM for each request.

The real daemon with a server/init.lua, and at first nothing else to do, asked by a second process as fast as it
answers.  The peer is a bare aiohttp handler that returns the same text, on the same loop, asked in the same way, in
turns.  Then the lateness of small jobs on the same daemon, with nobody asking and with 32 connections that never stop.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.command import running, write_jobs
from benchmarks.load import Load, measure
from benchmarks.place import folder
from benchmarks.servers import started
from benchmarks.table import Effort, Row, median, percentile, read_effort, show
from spyweb.cli.client import find_daemon
from spyweb.subjects.runs.commands import newest_runs

INIT = 'function get:hello() return "hello" end\n'
PATH = "/api/v/hello"
CROWDS = (1, 32)
REACH = {32: 0.2}
TURNS = 4  # windows of each, of a second
JOBS, EVERY = 100, "1s"

JOB = 'store_set("n", tostring(os.clock()))'

Figures = dict[str, float]  # what → microseconds an answer, milliseconds


@contextmanager
def ours(root: Path) -> Iterator[str]:
    (root / "server").mkdir()
    (root / "server/init.lua").write_text(INIT)
    with running(root):
        yield url_in(root / "daemon.out")


def url_in(output: Path) -> str:
    """Return the server's URL, which is printed right after READY."""
    while '"started"' not in output.read_text():
        time.sleep(0.05)
    line = next(line for line in output.read_text().splitlines() if '"started"' in line)
    return str(json.loads(line)["url"])


def checked(load: Load) -> Load:
    if load.others:
        raise RuntimeError(f"{load.others} answers were not 200")
    return load


def lateness(root: Path, seconds: float) -> float:
    """Return the p99 of the last so many seconds, in milliseconds from the due time to the recorded start of a run."""
    daemon = find_daemon(root / "data")
    assert daemon
    runs = newest_runs(daemon, None, limit=1000)
    since_ms = time.time() * 1e3 - seconds * 1e3
    late = [run.started_ms - run.due_ms for run in runs if run.started_ms and run.due_ms and run.due_ms > since_ms]
    return percentile(late, 0.99)


def one_round(effort: Effort) -> Figures:
    seconds = effort.of(4, 1)
    figures: Figures = {}
    with folder() as root, started("benchmarks.bare_aiohttp") as theirs, ours(root) as mine:
        checked(measure(mine + PATH, max(CROWDS), 0.5))  # warm
        for crowd in CROWDS:
            for name, loads in by_turns({"theirs": theirs, "ours": mine}, crowd, seconds / TURNS).items():
                figures[f"{name}, {crowd}"] = median(1e6 / load.per_second for load in loads)
                figures[f"{name} p99, {crowd}"] = median(load.p99_ms for load in loads)
        write_jobs(root, [f"small{number}" for number in range(JOBS)], EVERY, JOB)
        time.sleep(effort.of(4, 2))  # until they are live and have had their first runs
        checked(measure(mine + PATH, max(CROWDS), seconds))
        figures["late, flood"] = lateness(root, seconds * 0.9)
        time.sleep(seconds)
        figures["late, quiet"] = lateness(root, seconds * 0.9)
    return figures


def by_turns(urls: dict[str, str], crowd: int, seconds: float) -> dict[str, list[Load]]:
    """Load the servers in turns: else a machine that varies within seconds would decide."""
    turns = [{name: checked(measure(url + PATH, crowd, seconds)) for name, url in urls.items()} for _ in range(TURNS)]
    return {name: [turn[name] for turn in turns] for name in urls}


def rows_of(figures: Figures) -> list[Row]:
    rows = []
    for crowd in CROWDS:
        what = f"{crowd} connection{'s' if crowd > 1 else ''}"
        rows.append(Row(figure=f"an answer, {what}", ours=figures[f"ours, {crowd}"], unit="us", peer="bare aiohttp",
                        theirs=figures[f"theirs, {crowd}"], faster=True, reach=REACH.get(crowd)))  # fmt: skip
        rows.append(Row(figure=f"its p99, {what}", ours=figures[f"ours p99, {crowd}"], unit="ms", peer="bare aiohttp",
                        theirs=figures[f"theirs p99, {crowd}"]))  # fmt: skip
    rows.append(Row(figure=f"lateness p99 of {JOBS} jobs, 32 connections", ours=figures["late, flood"], unit="ms",
                    peer="nobody asks", theirs=figures["late, quiet"], limit=50))  # fmt: skip
    return rows


def main() -> None:
    effort = read_effort(__doc__)
    rounds = [one_round(effort) for _ in range(effort.rounds)]
    figures = {what: median(figures[what] for figures in rounds) for what in rounds[0]}
    show("A Lua endpoint: time an answer", effort, rows_of(figures))


if __name__ == "__main__":
    main()
