"""Measure the memory of jobs, VMs and workers, beside one Python process with lupa for each job.

Memory is PSS over the daemon and all it started: a page that several processes map counts in parts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.command import Daemon, running, write_jobs
from benchmarks.place import folder
from benchmarks.processes import family, pss_bytes, rss_bytes
from benchmarks.table import Row, read_effort, show
from spyweb.cli.client import find_daemon
from spyweb.model import JobId
from spyweb.subjects.jobs.commands import start_run

KB, MB = 1 << 10, 1 << 20
SOURCE = 'local n = tonumber(store_get("n") or "0") + 1 store_set("n", tostring(n))\n'
NAIVE = "import lupa, sys; vm = lupa.LuaRuntime(); vm.execute('n = 1'); print(flush=True); sys.stdin.read()"

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    loaded: int  # jobs that have run
    idle: int  # jobs that never ran
    extra: int  # workers
    naive: int  # processes
    settle_s: float  # before memory is measured


FULL = Sizes(loaded=500, idle=5000, extra=4, naive=6, settle_s=1)
QUICK = Sizes(loaded=3, idle=3, extra=1, naive=1, settle_s=0.05)


def tree_bytes(daemon: Daemon, settle_s: float) -> int:
    time.sleep(settle_s)
    return sum(map(pss_bytes, family(daemon.pid)))


def idle_daemon(workers: int, settle_s: float) -> Figures:
    with folder() as root:
        write_jobs(root, ["one"], "never", SOURCE)
        with running(root, "--workers", str(workers)) as daemon:
            tree = tree_bytes(daemon, settle_s)
            return {
                "tree": tree,
                "daemon": rss_bytes(daemon.pid),
                "zygote": rss_bytes(daemon.zygote()),
                "worker": rss_bytes(daemon.workers()[0]),
            }


def jobs_that_never_ran(count: int, settle_s: float) -> float:
    """Return the bytes of each, against a daemon with one."""
    with folder() as root:
        write_jobs(root, [f"job{number}" for number in range(count)], "never", SOURCE)
        with running(root) as daemon:
            return tree_bytes(daemon, settle_s)


def jobs_that_ran(count: int, settle_s: float) -> float:
    """Return the bytes of each VM: the same daemon before and after each job's first run."""
    with folder() as root:
        names = [f"job{number}" for number in range(count)]
        write_jobs(root, names, "never", SOURCE)
        with running(root) as daemon:
            run_each(root, names[:1])
            before = tree_bytes(daemon, settle_s)
            run_each(root, names[1:])
            return (tree_bytes(daemon, settle_s) - before) / (count - 1)


def run_each(root: Path, names: list[str]) -> None:
    client = find_daemon(root / "data")
    if client is None:
        raise RuntimeError("the daemon does not answer")
    for name in names:
        start_run(client, JobId(name))
    while any(view.id in names and not view.last for view in client.jobs()):
        time.sleep(0.1)


def naive_process(count: int) -> tuple[float, float]:
    """Return PSS and RSS of one of several Python processes, each with lupa and one small VM."""
    command = [sys.executable, "-c", NAIVE]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout
            process.stdout.readline()
        pids = [process.pid for process in processes]
        return sum(map(pss_bytes, pids)) / count, sum(map(rss_bytes, pids)) / count
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def measure(sizes: Sizes) -> Figures:
    idle = idle_daemon(2, sizes.settle_s)
    naive_pss, naive_rss = naive_process(sizes.naive)
    return {
        **idle,
        "one worker more": (idle_daemon(2 + sizes.extra, sizes.settle_s)["tree"] - idle["tree"]) / sizes.extra,
        "never ran": (jobs_that_never_ran(sizes.idle, sizes.settle_s) - idle["tree"]) / sizes.idle,
        "vm": jobs_that_ran(sizes.loaded, sizes.settle_s),
        "naive, PSS": naive_pss,
        "naive, RSS": naive_rss,
    }


def rows_of(seen: Figures) -> list[Row]:
    def row(figure: str, ours: float, unit: str, of: int, limit: float | None = None) -> Row:
        theirs = seen[f"naive, {figure[-3:]}"] / of
        return Row(figure=figure, ours=ours / of, unit=unit, peer="one process with lupa", theirs=theirs, limit=limit)

    return [
        row("daemon and 2 workers, idle, PSS", seen["tree"], "MB", MB, 80),
        row("one worker more, PSS", seen["one worker more"], "MB", MB),
        row("a job with its VM, idle, PSS", seen["vm"], "KB", KB, 100),
        row("a job that never ran, PSS", seen["never ran"], "KB", KB, 5),
        row("the daemon's process, RSS", seen["daemon"], "MB", MB),
        row("the zygote, RSS", seen["zygote"], "MB", MB),
        row("a worker, RSS", seen["worker"], "MB", MB),
    ]


def main() -> None:
    effort = read_effort(__doc__)
    sizes = QUICK if effort.quick else FULL
    once = replace(effort, rounds=1)  # memory hardly varies
    show("Memory", once, rows_of(measure(sizes)))


if __name__ == "__main__":
    main()
