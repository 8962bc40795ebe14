"""Measure what `file.copy` costs where there is nothing to do, from Lua in a worker, beside a loop of hashing.

Every file and its copy are equal, as they are in all runs of a job that keeps files but the first.  The peer is plain
Python: it opens both files and compares their SHA-256, and decides nothing about paths.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path

import uvloop

from benchmarks.engine import make_job, open_engine
from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, read_effort, show
from spyweb.model import Durability

SIZES = {"4 KB": 4 << 10, "64 KB": 64 << 10, "256 KB": 256 << 10}
PAIRS = 100
COPIES, QUICK = 10_000, 200

ONE_BY_ONE = b"""
function run(ctx)
  for i = 1, ctx.pairs do
    local name = ctx.folder .. "/" .. i % 100
    local outcome, problem = file.copy{ src = name, dest = name .. ".copy" }
    if not outcome or outcome.changed then error(problem or "it was not equal") end
  end
end
"""


BESIDE = b"""
local function keep(name)
  local outcome, problem = file.copy{ src = name, dest = name .. ".copy" }
  if not outcome or outcome.changed then error(problem or "it was not equal") end
end
function run(ctx)
  local names = {}
  for i = 1, ctx.pairs do names[i] = ctx.folder .. "/" .. i % 100 end
  parallel_map(names, keep)
end
"""


def make_files(place: Path, size: int) -> None:
    place.mkdir(parents=True)
    for number in range(PAIRS):
        content = os.urandom(size)
        (place / str(number)).write_bytes(content)
        (place / f"{number}.copy").write_bytes(content)


def hash_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def plain_loop(place: Path, copies: int) -> float:
    began = time.perf_counter()
    for number in range(copies):
        name = f"{place}/{number % PAIRS}"
        assert hash_of(name) == hash_of(f"{name}.copy")
    return time.perf_counter() - began


async def measure(root: Path, copies: int, rounds: int) -> list[Row]:
    rows = []
    jobs = {"one by one": make_job("onebyone", ONE_BY_ONE), "ten at once": make_job("beside", BESIDE)}
    async with open_engine(root, durability=Durability.NORMAL) as engine:
        for how, job in jobs.items():
            for label, size in SIZES.items():
                place = root / job.spec.folder / str(size)
                make_files(place, size)
                await engine.call_all([job], {"pairs": 1, "folder": str(size)})  # makes its VM
                ours, theirs = [], []
                for _ in range(rounds):
                    theirs.append(await asyncio.to_thread(plain_loop, place, copies))
                    ours.append(await engine.call_all([job], {"pairs": copies, "folder": str(size)}))
                figure = f"{copies:,} file.copy of equal files, {label}, {how}"
                peer = "a loop of hashing"
                rows.append(Row(figure=figure, ours=median(ours), unit="s", peer=peer, theirs=median(theirs), reach=2))
    return rows


def main(effort: Effort) -> None:
    with folder() as root:
        show("kept files", effort, uvloop.run(measure(root, effort.of(COPIES, QUICK), effort.rounds)))


if __name__ == "__main__":
    main(read_effort(__doc__))
