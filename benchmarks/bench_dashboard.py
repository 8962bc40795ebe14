"""Measure the overview and the API with 1,000 jobs: how soon they are there, and whom they delay.

The overview is looked at while 100 jobs a second run, the API is asked while 1,000 do.

The lateness of jobs while nobody looks is the peer of their lateness while somebody does.  Where there is Chromium,
it says when a person sees the first page.
"""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.bench_server import url_in
from benchmarks.command import Daemon, running, write_jobs
from benchmarks.place import folder
from benchmarks.processes import pss_bytes
from benchmarks.table import Effort, Row, median, percentile, read_effort, show

JOBS = 1_000
CALM, BUSY = "10s", "1s"  # how often each of them runs
JOB = 'store_set("n", tostring(os.clock()))\n'
CHROMIUM = shutil.which("chromium")
LATE = "SELECT started_ms - due_ms FROM run WHERE due_ms BETWEEN ? AND ? AND started_ms IS NOT NULL"
KB, MB = 1 << 10, 1 << 20

Figures = dict[str, float]


def one_round(effort: Effort) -> Figures:
    with project(effort, CALM) as (root, daemon, url):
        figures = overview(root, daemon, url, effort)
    with project(effort, BUSY) as (root, _, url):
        return figures | api(root, url, effort)


@contextmanager
def project(effort: Effort, every: str) -> Iterator[tuple[Path, Daemon, str]]:
    with folder() as root:
        write_jobs(root, [f"job{number}" for number in range(effort.of(JOBS, 50))], every, JOB)
        with running(root) as daemon:
            url = url_in(root / "daemon.out")
            time.sleep(effort.of(20, 3))  # until all have had their first runs
            yield root, daemon, url


def overview(root: Path, daemon: Daemon, url: str, effort: Effort) -> Figures:
    before = pss_bytes(daemon.pid)
    quiet = lateness_during(root, lambda: time.sleep(effort.of(10, 1)))
    first_ms, size = get(f"{url}/")
    others: list[float] = []
    late = lateness_during(root, lambda: others.extend(ask(f"{url}/", effort.of(100, 3))))
    figures = {"quiet": quiet, "first": first_ms, "bytes": size, "late": late, "p99": percentile(others, 0.99)}
    figures["memory"] = (pss_bytes(daemon.pid) - before) / MB
    return figures | (in_browser(url) if CHROMIUM else {})


def api(root: Path, url: str, effort: Effort) -> Figures:
    quiet = lateness_during(root, lambda: time.sleep(effort.of(10, 1)))
    found: list[float] = []
    late = lateness_during(root, lambda: found.extend(ask(f"{url}/api/jobs", effort.of(100, 3))))
    return {"api quiet": quiet, "api late": late, "api": percentile(found, 0.99)}


def get(url: str) -> tuple[float, int]:
    """Return the milliseconds until a whole answer is there, and its bytes as they were sent."""
    request = urllib.request.Request(url, headers={"Accept": "text/html,*/*", "Accept-Encoding": "gzip"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=30) as answer:
        body = answer.read()
        packed = answer.headers.get("Content-Encoding") == "gzip"
    took_ms = (time.perf_counter() - began) * 1e3
    if not (gzip.decompress(body) if packed else body):
        raise RuntimeError(f"{url} is empty")
    return took_ms, len(body)


def ask(url: str, times: int) -> list[float]:
    found = []
    for _ in range(times):
        found.append(get(url)[0])
        time.sleep(0.05)
    return found


def lateness_during(root: Path, work: Callable[[], object]) -> float:
    """Return the p99 of the milliseconds from the due time to the recorded start of runs, while this goes on."""
    began_ms = int(time.time() * 1e3)
    work()
    ended_ms = int(time.time() * 1e3)
    time.sleep(1)  # until the last of them are on record
    with closing(sqlite3.connect(f"{(root / 'data/spyweb.db').as_uri()}?mode=ro", uri=True)) as connection:
        late = [late_ms for (late_ms,) in connection.execute(LATE, (began_ms, ended_ms))]
    return percentile(late, 0.99)


def in_browser(url: str) -> Figures:
    """Return when Chromium first paints the overview, and when its script is done."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.goto(url)  # once, so that the browser itself is warm
        page = browser.new_page()
        page.goto(url)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        ready = page.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
        browser.close()
    return {"paint": float(paint), "ready": float(ready)}


def rows_of(figures: Figures) -> list[Row]:
    rows = [
        Row(figure="the first overview", ours=figures["first"], unit="ms", limit=150),
        Row(figure="an overview, p99", ours=figures["p99"], unit="ms", limit=150),
        Row(figure="its bytes, compressed", ours=figures["bytes"] / KB, unit="KB", limit=50),
        Row(
            figure="lateness p99 meanwhile",
            ours=figures["late"],
            unit="ms",
            peer="nobody looks",
            theirs=figures["quiet"],
        ),
        Row(figure="memory after the pages", ours=figures["memory"], unit="MB", limit=15),
        Row(figure="GET /api/jobs, p99", ours=figures["api"], unit="ms", limit=50),
        Row(
            figure="lateness p99 meanwhile",
            ours=figures["api late"],
            unit="ms",
            peer="nobody asks",
            theirs=figures["api quiet"],
        ),
    ]
    if "paint" in figures:
        rows.append(Row(figure="first paint in Chromium", ours=figures["paint"], unit="ms", limit=500))
        rows.append(Row(figure="all there in Chromium", ours=figures["ready"], unit="ms", limit=1000))
    return rows


def main() -> None:
    effort = read_effort(__doc__)
    rounds = [one_round(effort) for _ in range(effort.rounds)]
    figures = {what: median(each[what] for each in rounds) for what in rounds[0]}
    show(f"Pages and API with {effort.of(JOBS, 50)} jobs", effort, rows_of(figures))


if __name__ == "__main__":
    main()
