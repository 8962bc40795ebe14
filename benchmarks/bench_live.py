"""Measure what open pages of the dashboard cost the jobs: lateness, memory, processor.

The real daemon with 1,000 jobs of which 100 a second end a run, and 200 overviews that are open in browsers, half of
which do not read.  Beside it the same daemon with no page open: what lateness it has then, and what it takes.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.bench_server import lateness, url_in
from benchmarks.command import Daemon, running, write_jobs
from benchmarks.open_pages import mark_of, opened
from benchmarks.place import folder
from benchmarks.processes import cpu_seconds, private_bytes
from benchmarks.table import Effort, Row, median, read_effort, show

JOBS, EVERY_S = 1_000, 10  # together 100 runs a second
PAGES = 200
JOB = 'store_set("n", tostring(os.clock()))'
SETTLE_S = 3.0

Figures = dict[str, float]  # what → milliseconds, kilobytes, percent


def one_round(effort: Effort) -> Figures:
    jobs, pages, seconds = effort.of(JOBS, 50), effort.of(PAGES, 20), effort.of(10, 2)
    with folder() as root:
        write_jobs(root, [f"job{number:04d}" for number in range(jobs)], f"{EVERY_S}s", JOB)
        with running(root) as daemon:
            url = url_in(root / "daemon.out") + "/"
            mark_of(url)  # so that all is imported, and the first rows are made
            time.sleep(max(SETTLE_S, effort.of(EVERY_S, 0)))
            return {**quiet(root, daemon, seconds), **crowded(root, daemon, url, pages, seconds)}


def quiet(root: Path, daemon: Daemon, seconds: float) -> Figures:
    before = cpu_seconds(daemon.pid)
    time.sleep(seconds)
    spent = cpu_seconds(daemon.pid) - before
    return {"late, quiet": lateness(root, seconds), "cpu, quiet": 100 * spent / seconds}


def crowded(root: Path, daemon: Daemon, url: str, pages: int, seconds: float) -> Figures:
    memory = private_bytes(daemon.pid)
    with opened(url, pages, SETTLE_S + seconds) as process:
        time.sleep(SETTLE_S)
        before = cpu_seconds(daemon.pid)
        time.sleep(seconds - 0.5)
        spent = cpu_seconds(daemon.pid) - before
        held = private_bytes(daemon.pid) - memory
        late = lateness(root, seconds - 0.5)
        output, _ = process.communicate(timeout=30)
    return {
        "late, pages": late,
        "cpu, pages": 100 * spent / (seconds - 0.5),
        "memory": max(held, 0) / pages / 1024,
        "sent": float(output) / 1024,
    }


def rows_of(figures: Figures) -> list[Row]:
    more = max(figures["late, pages"] - figures["late, quiet"], 0.0)
    return [
        Row(figure=f"lateness p99, {PAGES} pages open", ours=figures["late, pages"], unit="ms", peer="none open",
            theirs=figures["late, quiet"]),
        Row(figure="what they add to it", ours=more, unit="ms", limit=5),
        Row(figure="memory of one, half of them not reading", ours=figures["memory"], unit="KB", limit=100),
        Row(figure="sent to one that reads, a second", ours=figures["sent"], unit="KB"),
        Row(figure="the daemon's share of a processor", ours=figures["cpu, pages"], unit="%", peer="none open",
            theirs=figures["cpu, quiet"]),
    ]  # fmt: skip


def main() -> None:
    effort = read_effort(__doc__)
    rounds = [one_round(effort) for _ in range(effort.rounds)]
    figures = {what: median(figures[what] for figures in rounds) for what in rounds[0]}
    show("Live pages: 100 changes a second", effort, rows_of(figures))


if __name__ == "__main__":
    main()
