"""Three nodes write the same values over networks that break, at best between a COMMIT and its answer."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import psycopg
import pytest

from spyweb.clock import RealClock
from spyweb.errors import StoreError
from spyweb.model import Cursor, JobId, RunState, Trigger, TriggerType
from spyweb.store.model.runs import Change, NewRun
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres
from spyweb.store.sqlite.store import Store
from tests.fakes.postgres import PostgresServer
from tests.fakes.postgres_proxy import PostgresProxy, a_proxy
from tests.fakes.stores import become_node, counting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NODES = 3
SHARED_KEYS = 20
LEASE_S = 4.0  # no fault lasts as long, so nobody is given up


@dataclass
class Work:
    """What was asked of the stores, and what they answered."""

    until: float
    done: Counter[bytes] = field(default_factory=Counter)  # by key, and by job
    refused: Counter[bytes] = field(default_factory=Counter)

    async def count(self, store: Store, key: bytes, dice: random.Random) -> None:
        """Increment a key of its own, or one of those that all nodes increment."""
        loop = asyncio.get_running_loop()
        while loop.time() < self.until:
            chosen = key if dice.random() < 0.5 else b"shared%d" % dice.randrange(SHARED_KEYS)
            try:
                await store.values.transform("state", chosen, counting(1))
                self.done[chosen] += 1
            except StoreError:
                self.refused[chosen] += 1
                await asyncio.sleep(0.01)

    async def claim(self, store: Store, name: str) -> None:
        """Claim the due times of a job, one after another; after a refusal from where the record says."""
        loop, job = asyncio.get_running_loop(), JobId(name)
        cursor: Cursor | None = None
        while loop.time() < self.until:
            try:
                if cursor is None:
                    cursor = (await store.runs.cursors()).get(job)
                due_ms = cursor.due_ms + 1 if cursor else 1
                moved = Cursor(job=job, due_ms=due_ms, schedule="e", paused=False)
                trigger = Trigger(type=TriggerType.SCHEDULE)
                run = NewRun(job=job, state=RunState.RUNNING, trigger=trigger, due_ms=due_ms, started_ms=1)
                expects = {job: cursor} if cursor else {}
                await store.runs.record(Change(expects=expects, cursors=[moved], new=[run]))
                cursor = moved
                self.done[name.encode()] += 1
            except StoreError:
                self.refused[name.encode()] += 1
                cursor = None
                await asyncio.sleep(0.01)

    def wrong(self, stored: Counter[bytes]) -> list[str]:
        """Return where more or less is stored than was done; what was refused may be stored."""
        return [
            f"{key!r}: done {self.done[key]}, refused {self.refused[key]}, stored {stored[key]}"
            for key in sorted({*stored, *self.done})
            if not self.done[key] <= stored[key] <= self.done[key] + self.refused[key]
        ]


async def break_networks(
    proxies: list[PostgresProxy], server: PostgresServer, dice: random.Random, until: float
) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        proxy, kind = dice.choice(proxies), dice.random()
        if kind < 0.5:
            proxy.hold_answers()
            await asyncio.sleep(dice.uniform(0, 0.03))
            proxy.cut()
        elif kind < 0.8:
            proxy.cut()
        elif kind < 0.95:
            proxy.hold_requests()
            await asyncio.sleep(dice.uniform(0.05, 0.5))
        else:
            server.kill()
            await asyncio.sleep(dice.uniform(0, 0.5))
            server.start()
        proxy.release()
        await asyncio.sleep(dice.uniform(0.02, 0.3))


@asynccontextmanager
async def nodes(proxies: list[PostgresProxy]) -> AsyncIterator[list[Store]]:
    """Yield a store for each network, that of a node which is on record as alive."""
    clock = RealClock()
    async with AsyncExitStack() as stack:
        opened = []
        for number, proxy in enumerate(proxies, 1):
            opened.append(await open_postgres(PgServer(url=proxy.url, lease_s=LEASE_S), clock=clock))
            stack.push_async_callback(opened[-1].close)
            await become_node(opened[-1], number)
        yield opened


async def test_no_write_is_lost_or_done_twice_however_connections_break(
    own_postgres: PostgresServer, torture: bool, minutes: float
) -> None:
    loop, dice = asyncio.get_running_loop(), random.Random(1)
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(a_proxy(own_postgres.url)) for _ in range(NODES)]
        stores = await stack.enter_async_context(nodes(proxies))
        end = loop.time() + (minutes * 60 if torture else 3)
        work = Work(end + 1)
        async with asyncio.TaskGroup() as tasks:
            for number, store in enumerate(stores):
                for caller in range(6):
                    tasks.create_task(work.count(store, b"own%d-%d" % (number, caller), dice))
                for job in range(3):
                    tasks.create_task(work.claim(store, f"job{number}-{job}"))
            tasks.create_task(break_networks(proxies, own_postgres, dice, end))
    with psycopg.connect(own_postgres.url) as connection:
        values = connection.execute("SELECT key, convert_from(value, 'UTF8')::bigint FROM spyweb.entry").fetchall()
        runs = connection.execute("SELECT convert_to(job, 'UTF8'), count(*) FROM spyweb.run GROUP BY job").fetchall()
        cursors = connection.execute("SELECT convert_to(job, 'UTF8'), due_ms FROM spyweb.cursor").fetchall()
    assert work.done.total() > 500, "the test proves nothing"
    assert dict(runs) == dict(cursors), "a due time without a run"
    assert work.wrong(Counter({bytes(key): count for key, count in [*values, *runs]})) == []
