"""Measure what `parallel_map` gains: 200 local addresses that answer after 20 ms, from one run.

The peers: the same script with a plain loop, and a gather of aiohttp with a semaphore, written by hand, on the same
event loop, in turns.  Then what branches cost by themselves: 1,000 functions that do nothing, with one op each, and
one op of a run that has no branches beside one of a run that had some.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import aiohttp
import uvloop

from benchmarks.engine import Engine, make_job, open_engine
from benchmarks.place import folder
from benchmarks.servers import started
from benchmarks.table import Row, median, read_effort, show

ADDRESSES, QUICK_ADDRESSES = 200, 20
LIMITS = (10, 50, 200)
GATHER_REACH = {10: 0.7, 200: 0.3}
TURNS = 3
OPS, QUICK_OPS = 2_000, 50

LOOP = b"""
function run(ctx)
  for i = 1, ctx.count do assert(http_get(ctx.url .. i).size == 1024) end
end
"""
MAP = b"""
function run(ctx)
  local addresses = {}
  for i = 1, ctx.count do addresses[i] = ctx.url .. i end
  local responses, n = parallel_map(addresses, function(url) return http_get(url) end, ctx.limit)
  for i = 1, n do assert(responses[i].size == 1024) end
end
"""
NOTHING = b"""
function run(ctx)
  local items = {}
  for i = 1, 1000 do items[i] = i end
  parallel_map(items, function() end, 1000)
end
"""
ONE_OP = b"""
function run(ctx)
  local items = {}
  for i = 1, 1000 do items[i] = i end
  parallel_map(items, function(i) store_get("k") end, 1000)
end
"""
PLAIN_OPS = b"function run(ctx) for i = 1, ctx.ops do store_get('k') end end"
OPS_AFTERWARDS = b"function run(ctx) parallel(function() end) for i = 1, ctx.ops do store_get('k') end end"

Figures = dict[str, float]  # what → seconds


async def gathered(url: str, count: int, limit: int) -> float:
    """Return the seconds that whoever writes it by hand needs."""
    began = time.perf_counter()
    slots = asyncio.Semaphore(limit)

    async def fetch(session: aiohttp.ClientSession, number: int) -> None:
        async with slots, session.get(f"{url}{number}") as response:
            assert len(await response.read()) == 1024

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(fetch(session, number) for number in range(count)))
    return time.perf_counter() - began


async def one_round(count: int, ops: int) -> Figures:
    with folder() as root, started("benchmarks.slow_server") as server:
        url = f"{server}/page/"
        async with open_engine(root) as engine:
            return {**await fetch_all(engine, url, count), **await by_themselves(engine, ops)}


async def fetch_all(engine: Engine, url: str, count: int) -> Figures:
    loop, mapped = make_job("loop", LOOP), make_job("map", MAP)
    await engine.call_all([loop, mapped], {"url": url, "count": 1, "limit": 1})  # makes their VMs
    figures = {"loop": await engine.call_all([loop], {"url": url, "count": count})}
    for limit in LIMITS:
        ours, theirs = [], []
        for _ in range(TURNS):
            theirs.append(await gathered(url, count, limit))
            ours.append(await engine.call_all([mapped], {"url": url, "count": count, "limit": limit}))
        figures[f"ours, {limit}"], figures[f"gather, {limit}"] = median(ours), median(theirs)
    return figures


async def by_themselves(engine: Engine, ops: int) -> Figures:
    sources = {"nothing": NOTHING, "one op": ONE_OP, "plain": PLAIN_OPS, "afterwards": OPS_AFTERWARDS}
    jobs = {what: make_job(what.replace(" ", "_"), source) for what, source in sources.items()}
    await engine.call_all(list(jobs.values()), {"ops": 1})
    turns = [{what: await engine.call_all([job], {"ops": ops}) for what, job in jobs.items()} for _ in range(TURNS)]
    return {what: median(turn[what] for turn in turns) for what in jobs}


def rows_of(count: int, ops: int, took: Figures) -> Sequence[Row]:
    ms = {what: seconds * 1e3 for what, seconds in took.items()}
    once = f"{count} addresses, {{}} at once"
    loop = Row(figure=once.format(10), ours=ms["ours, 10"], unit="ms", peer="one by one", theirs=ms["loop"],
               faster=True, reach=5)  # fmt: skip
    gathers = [
        Row(figure=once.format(limit), ours=ms[f"ours, {limit}"], unit="ms", peer="aiohttp, gather",
            theirs=ms[f"gather, {limit}"], faster=True, reach=GATHER_REACH.get(limit))
        for limit in LIMITS
    ]  # fmt: skip
    afterwards = Row(figure="an op of a run that had branches", ours=ms["afterwards"] * 1e3 / ops, unit="us",
                     peer="that never had any", theirs=ms["plain"] * 1e3 / ops)  # fmt: skip
    return [
        loop,
        *gathers,
        Row(figure="1,000 functions that do nothing", ours=ms["nothing"], unit="ms"),
        Row(figure="1,000 functions with one op each", ours=ms["one op"], unit="ms"),
        afterwards,
    ]


def main() -> None:
    effort = read_effort(__doc__)
    count, ops = effort.of(ADDRESSES, QUICK_ADDRESSES), effort.of(OPS, QUICK_OPS)
    rounds = [uvloop.run(one_round(count, ops)) for _ in range(effort.rounds)]
    took = {what: median(figures[what] for figures in rounds) for what in rounds[0]}
    show("Several calls of one run at once", effort, rows_of(count, ops, took))


if __name__ == "__main__":
    main()
