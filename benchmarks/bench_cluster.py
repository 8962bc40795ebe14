"""Measure the store on PostgreSQL beside SQLite, the cost of the fence, and how a cluster shares and takes over jobs.

PostgreSQL syncs each commit, on the same disk.  Runs are claimed and ended by 64 jobs, each by changes of its own, with
round trips of several lengths.  The nodes are real daemons, whose lease is 3 s.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg
import uvloop

from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, read_effort, show
from spyweb.clock import RealClock
from spyweb.model import Cursor, Durability, JobId, Outcome, RunState, Trigger, TriggerType
from spyweb.ownership import slot_of
from spyweb.store.model.entries import KEEP, Addition, Entry, Put
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.cluster import Cluster, ClusterNode, a_cluster
from tests.fakes.postgres import PORT, PostgresPlace, PostgresServer, own_server, programs, url_at
from tests.fakes.stores import become_node

CALLERS = 64
KEYS = 500
SYNCED = {"fsync": "on", "shared_buffers": "128MB"}
DELAYS_S = (0.00012, 0.00055)  # each way; what a round trip then takes is measured
LEASE_MS, BEAT_MS = 3000, 500
JOBS = 1000  # four a slot
IS_SHARED = """
    SELECT count(*) = %s AND max(n) - min(n) <= 1 AND sum(n) = (SELECT count(*) FROM slot)
    FROM (SELECT count(*) AS n FROM slot WHERE owner IS NOT NULL GROUP BY owner) AS shares
"""

Rate = Callable[[Store, float], Awaitable[float]]  # of a store, for so many seconds: how many a second


async def runs(store: Store, seconds: float) -> float:
    """Claim and end runs, each by a change of its own."""
    until, done = time.perf_counter() + seconds, 0

    async def job(number: int) -> None:
        nonlocal done
        name, due_ms = JobId(f"j{number}-{time.time_ns()}"), 0
        cursor = Cursor(job=name, due_ms=due_ms, schedule="e", paused=False)
        await store.runs.record(Change(cursors=[cursor]))
        while time.perf_counter() < until:
            due_ms += 1
            moved = Cursor(job=name, due_ms=due_ms, schedule="e", paused=False)
            run = NewRun(
                job=name,
                state=RunState.RUNNING,
                trigger=Trigger(type=TriggerType.SCHEDULE),
                due_ms=due_ms,
                started_ms=1,
            )
            ids = await store.runs.record(Change(expects={name: cursor}, cursors=[moved], new=[run]))
            cursor = moved
            assert ids[0] is not None
            await store.runs.record(Change(end=[End(run=ids[0], ended_ms=2, outcome=Outcome.SUCCESS)]))
            done += 1

    await asyncio.gather(*map(job, range(CALLERS)))
    return done / seconds


def increments(callers: int) -> Rate:
    def add(entry: Entry | None) -> Put:
        before = entry.value if entry else 0
        assert isinstance(before, int)
        return Put(before + 1, KEEP, before + 1)

    async def measure(store: Store, seconds: float) -> float:
        until, done = time.perf_counter() + seconds, 0

        async def caller(number: int) -> None:
            nonlocal done
            while time.perf_counter() < until:
                number += 1
                key = b"k%d" % (number % KEYS)
                await store.values.transform("state", key, Addition(1, lambda total: total, add))
                done += 1

        await asyncio.gather(*(caller(number * 7) for number in range(callers)))
        return done / seconds

    return measure


async def by_turns(stores: dict[str, Store], rate: Rate, effort: Effort) -> dict[str, float]:
    """Return the microseconds of one, of each store; measured by turns, since a machine gets slower and faster."""
    found: dict[str, list[float]] = {name: [] for name in stores}
    for _ in range(effort.rounds * effort.of(3, 1)):
        for name, store in stores.items():
            found[name].append(1e6 / await rate(store, 0.2 if effort.quick else 0.5))
    return {name: median(each) for name, each in found.items()}


@contextmanager
def slow(server: PostgresServer, place: Path, delay_s: float) -> Iterator[str]:
    """Yield the url of the server behind a network."""
    place.mkdir()
    name = f".s.PGSQL.{PORT}"
    words = [str(server.folder / name), str(place / name), str(delay_s)]
    command = [sys.executable, "-m", "benchmarks.slow_network", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield url_at(place)
        finally:
            process.kill()


def round_trip_ms(url: str) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        times = []
        for _ in range(200):
            began = time.perf_counter()
            connection.execute("SELECT 1")
            times.append(time.perf_counter() - began)
    return median(times) * 1e3


@asynccontextmanager
async def opened(place: Path, urls: dict[str, str]) -> AsyncIterator[dict[str, Store]]:
    """Yield a store on SQLite for each durability, and one on PostgreSQL for each url, of a node that has joined."""
    clock = RealClock()
    stores = {
        each.value: await open_store(place / f"{each.value}.db", clock=clock, durability=each) for each in Durability
    }
    for number, (name, url) in enumerate(urls.items()):
        stores[name] = await open_postgres(PgServer(url=url, schema=f"b{number}"), clock=clock)
        await become_node(stores[name], 7)
    try:
        yield stores
    finally:
        for store in stores.values():
            await store.close()


async def stores(server: PostgresServer, place: Path, effort: Effort) -> list[Row]:
    rows = []
    with slow(server, place / "s1", DELAYS_S[0]) as near, slow(server, place / "s2", DELAYS_S[1]) as far:
        urls = {f"round trip {round_trip_ms(url):.2f} ms": url for url in (server.url, near, far)}
        async with opened(place, urls) as all_stores:
            took = await by_turns(all_stores, runs, effort)
            rows += [
                Row(figure=f"a run claimed and ended, 64 jobs, {name}", ours=took[name], unit="us", peer="SQLite, full",
                    theirs=took["full"])
                for name in urls
            ]  # fmt: skip
            for callers in (CALLERS, 1):
                took = await by_turns(all_stores, increments(callers), effort)
                rows += [
                    Row(figure=f"an increment, {callers} at once, {name}", ours=took[name], unit="us",
                        peer=f"SQLite, {peer}", theirs=took[peer])
                    for name, peer in [*((name, "full") for name in urls), (next(iter(urls)), "normal")]
                ]  # fmt: skip
    return rows


async def fence(server: PostgresServer, effort: Effort) -> list[Row]:
    """Measure writes that lock the row of their node first, beside those of a command, which has none."""
    place, clock = PgServer(url=server.url, schema="fence"), RealClock()
    plain = await open_postgres(place, clock=clock)
    both = {"plain": plain, "fenced": await open_postgres(place, clock=clock)}
    await become_node(both["fenced"], 7)
    rows = []
    for callers, reach in ((CALLERS, 1.11), (1, 1.25)):
        took = await by_turns(both, increments(callers), effort)
        rows.append(Row(figure=f"an increment with the fence, {callers} at once", ours=took["fenced"], unit="us",
                        peer="without", theirs=took["plain"], reach=reach))  # fmt: skip
    for store in both.values():
        await store.close()
    return rows


async def life(server: PostgresServer, place: Path, effort: Effort) -> list[Row]:
    """Measure how a cluster of real daemons shares its jobs, and takes over those of a node that ends."""
    names = [f"job{number}" for number in range(effort.of(JOBS, 50))]
    cluster = Cluster(PostgresPlace(server.url, "spyweb"), place, LEASE_MS, BEAT_MS)
    joins, drains, kills = [], [], []
    async with a_cluster(cluster, ["n1", "n2", "n3", "n4"]):
        for name in names:
            cluster.job(name, "return 1", 'every = "1h"')
        *first, last = cluster.nodes
        for node in first:
            node.start()
        await cluster.until(IS_SHARED, 3)
        rows = spread(cluster, names)
        before = cluster.multixacts()
        for _ in range(effort.rounds):
            joins.append(await join(cluster, last))
            drains.append(await leave(cluster, last, signal.SIGTERM))
            await join(cluster, last)
            kills.append(await leave(cluster, last, signal.SIGKILL))
        after = cluster.multixacts()
    lease_s = LEASE_MS / 1000
    return [
        *rows,
        Row(figure="a node joins: it has its share", ours=median(joins) / lease_s, unit="leases"),
        Row(figure="a node drains: others have its slots", ours=median(drains) / lease_s, unit="leases", limit=0.5),
        Row(figure="kill -9 of a node: others have its slots", ours=median(kills) / lease_s, unit="leases", limit=1.3),
        Row(figure="new MultiXacts and their members", ours=sum(after) - sum(before), unit="", limit=0),
    ]


async def join(cluster: Cluster, node: ClusterNode) -> float:
    """Start a node; return the seconds from when it is on record until each has its share."""
    former = await cluster.id_of(node)
    node.start()
    await cluster.until("SELECT max(id) > %s FROM node WHERE name = %s", former, node.name)
    nodes = sum(each.runs for each in cluster.nodes)
    return await cluster.until(IS_SHARED, nodes)


async def leave(cluster: Cluster, node: ClusterNode, how: signal.Signals) -> float:
    """End a node; return the seconds until others own all of its slots."""
    former = await cluster.id_of(node)
    began = time.perf_counter()
    ended = asyncio.create_task(node.stopped(how))
    query = "SELECT count(*) = 0 FROM slot WHERE owner = %s OR owner IS NULL"
    await cluster.until(query, former)
    took = time.perf_counter() - began
    await ended
    return took


def spread(cluster: Cluster, names: list[str]) -> list[Row]:
    owners = dict(cluster.ask("SELECT id, owner FROM slot WHERE pool = ''"))
    slots = Counter(owners.values())
    jobs = Counter(owners[slot_of(name).number] for name in names)
    return [
        Row(figure="slots of the node with most, beyond the least", unit="slots",
            ours=max(slots.values()) - min(slots.values()), limit=1),
        Row(figure=f"of {len(names):,} jobs those of the node with most", ours=max(jobs.values()), unit="jobs",
            peer="of the node with fewest", theirs=min(jobs.values()), reach=1.4),
    ]  # fmt: skip


async def main(effort: Effort) -> None:
    if programs() is None:
        print("PostgreSQL is not installed: apt-get install postgresql")
        return
    with folder() as place:
        place.chmod(0o755)  # the server runs as another user
        with own_server(SYNCED, place / "pg") as server:
            rows = await stores(server, place, effort)
            rows += await fence(server, effort)
            (place / "nodes").mkdir()
            rows += await life(server, place / "nodes", effort)
    show("PostgreSQL and the cluster", effort, rows)


if __name__ == "__main__":
    uvloop.run(main(read_effort(__doc__)))
