"""Measure how soon spyweb is ready: from its start to READY, and from a save to the first op of the new code.

The peer of a start is a plain program that compiles the same files with lupa and gives them to APScheduler; the peer of
a reload is what one would do without it: stop the daemon and start it again.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import running, write_jobs
from benchmarks.place import folder
from benchmarks.table import Row, median, percentile, read_effort, show
from spyweb.cli.client import find_daemon

STARTS = (10, 1000, 10_000)  # jobs
QUICK_STARTS = (10,)
PEER = "lupa compiling them, APScheduler"
FIRST_MARK = "SELECT created_ms FROM entry WHERE namespace = 'global' AND key = ?"
LOOK_EVERY = 0.01  # seconds
PATIENCE = 30.0  # seconds; a deadline for a hang, not a measure
PLAIN = """
import asyncio, sys
from pathlib import Path
from lupa import lua54
from apscheduler.schedulers.asyncio import AsyncIOScheduler
async def nothing(): pass
async def main():
    scheduler = AsyncIOScheduler()
    for file in sorted(Path(sys.argv[1]).glob("*.lua")):
        lua54.LuaRuntime().compile(file.read_text())
        scheduler.add_job(nothing, "interval", hours=1)
    scheduler.start()
asyncio.run(main())
"""


def write_project(root: Path, jobs: int) -> None:
    write_jobs(root, [f"job{number}" for number in range(jobs)], "1h", 'store_set("n", "1")\n')


def start(jobs: int) -> tuple[float, float]:
    """Return the seconds to READY on a project seen for the first time, and once more on the same."""
    with folder() as root:
        write_project(root, jobs)
        with running(root) as first:
            pass
        (root / "notify").unlink()
        with running(root) as again:
            return first.ready_s, again.ready_s


def plain_start(jobs: int) -> float:
    with folder() as root:
        write_project(root, jobs)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", PLAIN, str(root / "jobs")], check=True)
        return time.perf_counter() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloads:
    late_ms: list[float]  # from each save of one job of many to the first op of its new code
    vms: float  # made for a save, of all jobs


def reloads(jobs: int, saves: int) -> Reloads:
    with folder() as root:
        write_project(root, jobs - 1)
        save(root, 0)
        with running(root):
            wait_for_mark(root, 0)
            before = wait_for_vms(root)
            late_ms = [reload(root, number) for number in range(1, saves + 1)]
            return Reloads(late_ms=late_ms, vms=(wait_for_vms(root) - before) / saves)


def wait_for_vms(root: Path) -> int:
    """Return how many VMs have been made, once every job has one: new jobs begin over ten seconds."""
    daemon = find_daemon(root / "data")
    if daemon is None:
        raise RuntimeError("the daemon has ended")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        made = [job.vms for job in daemon.jobs()]
        if all(made):
            return sum(made)
        time.sleep(LOOK_EVERY * 10)
    raise RuntimeError("some jobs never ran")


def reload(root: Path, number: int) -> float:
    time.sleep(0.15 + number % 10 / 100)  # at another moment of the job's period each time
    saved_ms = time.time_ns() / 1e6
    save(root, number)
    return wait_for_mark(root, number) - saved_ms


def save(root: Path, number: int) -> None:
    write_jobs(root, ["watched"], "100ms", f'global_store_set("mark{number}", "here")\n')


def wait_for_mark(root: Path, number: int) -> int:
    """Return when the code of that save first set its mark, as the store noted it."""
    key = f"mark{number}".encode()
    deadline = time.monotonic() + PATIENCE
    with closing(sqlite3.connect(f"{(root / 'data' / 'spyweb.db').as_uri()}?mode=ro", uri=True)) as connection:
        while time.monotonic() < deadline:
            found = connection.execute(FIRST_MARK, (key,)).fetchone()
            if found:
                return int(found[0])
            time.sleep(LOOK_EVERY)
    raise RuntimeError(f"save {number} never ran: {(root / 'daemon.out').read_text()[-2000:]}")


def start_rows(jobs: int, rounds: int) -> list[Row]:
    starts = [start(jobs) for _ in range(rounds)]
    plain = median(plain_start(jobs) for _ in range(rounds))
    limit = 2.0 if jobs == 1000 else None

    def row(what: str, seconds: float) -> Row:
        once = " (once)" if rounds == 1 else ""
        return Row(figure=f"{what}, {jobs:,} jobs{once}", ours=seconds, unit="s", peer=PEER, theirs=plain, limit=limit)

    return [
        row("start, jobs never seen before", median(first for first, _ in starts)),
        row("start, known jobs", median(again for _, again in starts)),
    ]


def reload_rows(jobs: int, saves: int, restart_s: float) -> list[Row]:
    found = reloads(jobs, saves)

    def row(what: str, milliseconds: float, limit: float | None) -> Row:
        return Row(figure=f"save to first op, {jobs:,} jobs, {what}", ours=milliseconds, unit="ms",
                   peer="a restart to READY", theirs=restart_s * 1e3, limit=limit)  # fmt: skip

    return [
        row("median", median(found.late_ms), None),
        row("p99", percentile(found.late_ms, 0.99), 500),
        Row(figure=f"VMs replaced by a save, {jobs:,} jobs", ours=found.vms, unit="VMs", limit=1),
    ]


def main() -> None:
    effort = read_effort(__doc__)
    rows: list[Row] = []
    for jobs in QUICK_STARTS if effort.quick else STARTS:
        started = start_rows(jobs, 1 if jobs > 1000 else effort.rounds)
        rows += started
        if jobs <= 1000:
            rows += reload_rows(jobs, effort.of(12, 1), started[1].ours)
    show("Start and reload", effort, rows)


if __name__ == "__main__":
    main()
