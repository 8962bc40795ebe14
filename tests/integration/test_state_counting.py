"""Nothing that is counted is lost, however many jobs count at once, and whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.model import Outcome
from tests.fakes.scripts import Scripts, open_scripts

JOBS, TIMES = 12, 40
NAMES = [f"job{number}" for number in range(JOBS)]

ALL_THREE = f"""
for _ = 1, {TIMES} do
  global_store_incr("n", 0, 1)
  state.increment("n")
  state.update{{scope = "s", key = "k", ops = {{{{type = "increment", path = "n", by = 1}}}}}}
end
"""

# How far a job has come is part of the one value, so that no kill can come between.
IN_ONE_VALUE = f"""
local job = (...).job
local ops = {{{{type = "increment", path = job, by = 1}}, {{type = "increment", path = "total", by = 1}}}}
local so_far = state.get{{scope = "s", key = "k"}}
for _ = (so_far and so_far[job] or 0) + 1, {TIMES} do
  state.update{{scope = "s", key = "k", ops = ops}}
end
"""

# Its own counter comes last: a kill in between makes the shared ones one more than the sum of the others, never less.
SHARED_AND_OWN = f"""
local job = (...).job
for _ = state.get("own:" .. job, 0) + 1, {TIMES} do
  state.increment("shared")
  global_store_incr("shared", 0, 1)
  state.update{{scope = "s", key = "shared", ops = {{{{type = "increment", path = "", by = 1}}}}}}
  state.increment("own:" .. job)
end
"""


@pytest.fixture
async def scripts(tmp_path: Path) -> AsyncIterator[Scripts]:
    async with open_scripts(tmp_path, workers=3) as scripts:
        yield scripts


async def test_every_increment_of_every_job_counts_once_in_each_of_the_three_counters(scripts: Scripts) -> None:
    endings = await scripts.together((name, ALL_THREE) for name in NAMES)

    assert {ending.outcome for ending in endings} == {Outcome.SUCCESS}
    counted = await scripts.succeed("return {global_store_get('n'), state.get('n'), state.get{scope='s', key='k'}.n}")
    assert counted == [b"%d" % (JOBS * TIMES), JOBS * TIMES, JOBS * TIMES]


async def run_until_done(scripts: Scripts, name: str, source: str) -> int:
    """How many runs it took."""
    for attempt in range(1, 20):
        ending = await scripts.run(source, name)
        if ending.outcome is Outcome.SUCCESS:
            return attempt
        assert ending.outcome is Outcome.LOST, ending.reason
    raise AssertionError(f"{name} found no end")


async def kill_one_worker_after_another(scripts: Scripts, times: int) -> None:
    killed: set[int] = set()
    while len(killed) < times:
        written = scripts.world.metrics.state.writes
        while scripts.world.metrics.state.writes < written + 50:  # noqa: ASYNC110 - as far as they have come
            await asyncio.sleep(0.001)
        # A killed worker is listed until its zygote has told of it, and by then its pid may be nobody's.
        busy = {worker.pid for worker in scripts.pool.stats().workers if worker.pid and worker.runs} - killed
        if busy:
            pid = min(busy)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)


@pytest.mark.slow
async def test_killed_workers_lose_no_increment_of_a_value_that_says_how_far_each_job_is(scripts: Scripts) -> None:
    async with asyncio.TaskGroup() as tasks:
        runs = [tasks.create_task(run_until_done(scripts, name, IN_ONE_VALUE)) for name in NAMES]
        tasks.create_task(kill_one_worker_after_another(scripts, 3))

    assert sum(run.result() for run in runs) > JOBS, "nobody met a kill"
    counted = await scripts.succeed("return state.get{scope = 's', key = 'k'}")
    assert counted == {name.encode(): TIMES for name in NAMES} | {b"total": JOBS * TIMES}


@pytest.mark.slow
async def test_killed_workers_lose_no_increment_of_shared_counters(scripts: Scripts) -> None:
    async with asyncio.TaskGroup() as tasks:
        runs = [tasks.create_task(run_until_done(scripts, name, SHARED_AND_OWN)) for name in NAMES]
        tasks.create_task(kill_one_worker_after_another(scripts, 3))

    lost = sum(run.result() for run in runs) - JOBS
    assert lost > 0, "nobody met a kill"
    script = """
    return {own = state.list("own:"), state = state.get("shared"), store = tonumber(global_store_get("shared")),
      scope = state.get{scope = "s", key = "shared"}}
    """
    counted = await scripts.succeed(script)
    assert isinstance(counted, dict)
    assert counted[b"own"] == {b"own:" + name.encode(): TIMES for name in NAMES}
    assert JOBS * TIMES <= counted[b"scope"] <= counted[b"store"] <= counted[b"state"] <= JOBS * TIMES + lost


async def test_a_lock_makes_reading_and_writing_back_as_good_as_counting(scripts: Scripts) -> None:
    source = """
    for _ = 1, 5 do
      assert(state.with_lock("door", function()
        local n = state.get("n", 0)
        sleep(0)
        state.set("n", n + 1)
        return true
      end, 20))
    end
    """
    endings = await scripts.together((name, source) for name in NAMES)

    assert {ending.outcome for ending in endings} == {Outcome.SUCCESS}
    assert await scripts.succeed("return state.get('n')") == JOBS * 5
    assert await scripts.store.locks.list() == []
