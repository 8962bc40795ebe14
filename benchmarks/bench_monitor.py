"""Measure monitors: what a check of a small page takes, beside urlwatch and a hand-written loop; what memory is left.

A check is a whole run of a monitor job as the daemon makes it: claimed and ended in the store, the page fetched from a
site in a separate process, thirty items extracted from it, known ones recognised.  The hand-written loop is aiohttp,
selectolax and aiosqlite, with the same durability and as many checks under way; urlwatch has its ten threads, and is
timed as a process with pages that it has seen before, if it is installed (`make bench` installs it).  Another figure is
the time that `spyweb test` takes for a hundred tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import uvloop

from benchmarks.engine import Engine, make_job, open_engine
from benchmarks.monitor_peers import AT_ONCE, FIELDS, plain_checks, urlwatch_checks
from benchmarks.place import folder
from benchmarks.processes import family, pss_bytes
from benchmarks.servers import started
from benchmarks.table import Effort, Row, median, read_effort, show
from spyweb.model import Field, Monitor
from spyweb.runs.live import LiveJob

JOBS = AT_ONCE
TESTS = 100
HOOKS = b"""
function before_fetch(request, ctx) request.headers["x-page"] = "1" return request end
function after_fetch(result, ctx) ctx.shared.size = #(result.response and result.response.body or "") return result end
function after_extract(items, ctx) return items end
function filter_item(item, ctx) return item.fields.price ~= "0" and item or nil end
function before_store(items, ctx) return items end
"""


def monitors(address: str, hooks: bytes) -> list[LiveJob]:
    fields = tuple(Field(name=name, selector=selector) for name, selector in FIELDS.items())
    return [
        make_job(
            f"job{number}",
            hooks,
            monitor=Monitor(urls=(f"{address}/job{number}",), selector=".item", fields=fields),
        )
        for number in range(JOBS)
    ]


async def check_all(engine: Engine, jobs: Sequence[LiveJob], passes: int) -> float:
    """Return the seconds a check takes."""
    took = 0.0
    for _ in range(passes):
        took += await engine.run_all(jobs)
    return took / (passes * len(jobs))


async def our_checks(address: str, hooks: bytes, root: Path, passes: int) -> float:
    async with open_engine(root) as engine:
        jobs = monitors(address, hooks)
        engine.add(jobs)
        await check_all(engine, jobs, 2)
        return await check_all(engine, jobs, passes)


async def memory_growth(address: str, root: Path, checks: int) -> tuple[float, float]:
    """Return the bytes of the daemon, its workers and extractors after a tenth of so many checks, and after all."""
    async with open_engine(root) as engine:
        jobs = monitors(address, HOOKS)
        engine.add(jobs)
        passes = max(1, checks // len(jobs))
        await check_all(engine, jobs, max(1, passes // 10))
        before = held()
        await check_all(engine, jobs, passes - passes // 10)
        return before, held()


def held() -> float:
    return float(sum(map(pss_bytes, family(os.getpid()))))


def test_command(tests: int) -> float:
    """Return the seconds that `spyweb test` takes with so many tests that do next to nothing."""
    with folder() as root:
        (root / "jobs").mkdir()
        (root / "jobs" / "sums.lua").write_text("function run() return 1 + 1 end\n")
        (root / "jobs" / "sums").mkdir()
        bodies = [f"function test_sum_{number}() spyweb.assert_eq(run(), 2) end\n" for number in range(tests)]
        (root / "jobs" / "sums" / "tests.lua").write_text("".join(bodies))
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "spyweb", "-C", str(root), "test"], capture_output=True, text=True, check=False
        )
        took = time.perf_counter() - began
    if done.returncode or f"{tests} passed" not in done.stdout:
        raise RuntimeError(f"spyweb test: {done.returncode} {done.stdout[-500:]} {done.stderr[-500:]}")
    return took


def measure(address: str, effort: Effort) -> dict[str, float]:
    """Measure everything once, in turn, so that a slow moment of the machine meets all of them."""
    passes = effort.of(40, 1)

    def ours(hooks: bytes) -> float:
        with folder() as root:
            return uvloop.run(our_checks(address, hooks, root, passes))

    with folder() as root:
        figures = {"plain": uvloop.run(plain_checks(address, root, passes * JOBS, JOBS)), "no hooks": ours(b"")}
    figures["five hooks"] = ours(HOOKS)
    if find_spec("urlwatch"):
        with folder() as root:
            figures["urlwatch"] = urlwatch_checks(address, root, effort.of(300, 10))
    figures["tests"] = test_command(effort.of(TESTS, 5))
    return figures


def rows(address: str, effort: Effort) -> list[Row]:
    found = [measure(address, effort) for _ in range(effort.rounds)]

    def row(figure: str, ours: str, peer: str, theirs: str, reach: float) -> Row:
        us, them = (median(each[name] for each in found) * 1e3 for name in (ours, theirs))
        return Row(figure=figure, ours=us, unit="ms", peer=peer, theirs=them, faster=True, reach=reach)

    checks = effort.of(50_000, JOBS * 2)
    with folder() as root:
        before, after = uvloop.run(memory_growth(address, root, checks))
    by_hand = "aiohttp, selectolax, aiosqlite"
    beside_urlwatch = [row("a check, no hooks", "no hooks", "urlwatch", "urlwatch", 4)] if find_spec("urlwatch") else []
    return [
        *beside_urlwatch,
        row("a check, no hooks", "no hooks", by_hand, "plain", 0.5),
        row("a check, five hooks", "five hooks", by_hand, "plain", 0.3),
        Row(figure=f"memory after {checks:,} checks with hooks", ours=after / 2**20, unit="MB",
            peer="after a tenth of them", theirs=before / 2**20, reach=1.05),
        Row(figure=f"`spyweb test`, {effort.of(TESTS, 5)} tests", ours=median(each["tests"] for each in found),
            unit="s", limit=2),
    ]  # fmt: skip


def main() -> None:
    effort = read_effort(__doc__)
    with started("benchmarks.pages") as address:
        show("Monitors", effort, rows(address, effort))


if __name__ == "__main__":
    main()
