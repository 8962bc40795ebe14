"""Several nodes write the same entries in one PostgreSQL: whatever is acknowledged is there."""

from __future__ import annotations

import asyncio
import random

import psycopg

from spyweb.clock import RealClock
from spyweb.model import HistoryRule
from spyweb.store.encryption import BYTES
from spyweb.store.model.entries import Drop, Entry, Put
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres, open_up_to_date
from spyweb.store.sqlite.store import Store
from tests.fakes.postgres import PostgresServer
from tests.fakes.stores import become_node

NODES, KEYS, CALLERS, ADDITIONS = range(1, 5), 8, 16, 40
OWN = "scope:own"
# Of before: the first addition makes an entry, as all others do at the same time.
EXPIRED = """
    INSERT INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
    SELECT 'state', convert_to(g::text, 'UTF8'), 't', '1000', 1, 1, 1, 1 FROM generate_series(0, %s) g
"""
SUM = "SELECT sum(convert_from(value, 'UTF8')::bigint) FROM entry WHERE namespace = 'state'"
# Row locks that several transactions share, which cost a file of their own.
SHARED_LOCKS = "SELECT next_multixact_id::text::bigint FROM pg_control_checkpoint()"


async def test_no_addition_of_four_nodes_is_lost_and_none_counts_twice(own_postgres: PostgresServer) -> None:
    server, clock, history = PgServer(url=own_postgres.url), RealClock(), {OWN: HistoryRule(versions=2)}
    open_up_to_date(server, 0, BYTES).close()
    with psycopg.connect(own_postgres.url, autocommit=True, options="-c search_path=spyweb") as connection:

        def ask(statement: str) -> int:
            (answer,) = connection.execute(statement.encode()).fetchone() or (0,)
            return int(answer)

        connection.execute(EXPIRED, (KEYS // 2,))
        connection.execute("CHECKPOINT")
        locks = ask(SHARED_LOCKS)
        stores = [await open_postgres(server, clock=clock, history=history) for _ in NODES]
        for node, store in zip(NODES, stores, strict=True):
            await become_node(store, node)
        await asyncio.gather(
            *(add(store, f"{number} {c}") for number, store in enumerate(stores) for c in range(CALLERS))
        )
        await asyncio.gather(*(store.close() for store in stores))
        assert ask(SUM) == len(NODES) * CALLERS * ADDITIONS
        connection.execute("CHECKPOINT")
        assert ask(SHARED_LOCKS) == locks


async def add(store: Store, name: str) -> None:
    """Add to what all nodes add to, and write what shares commits with it: what comes or goes, and what is no entry."""

    def come_or_go(entry: Entry | None) -> Put | Drop:
        return Drop() if entry else Put(b"here", expires_ms=1)

    chance, own = random.Random(name), name.encode()
    for number in range(ADDITIONS):
        await store.values.increment("state", b"%d" % chance.randrange(KEYS), 0, 1)
        if number % 5 == 0:
            await store.values.transform(OWN, own, come_or_go)
        elif number % 5 == 1:
            await store.values.get("state", b"0")
        elif number % 5 == 2:
            await store.locks.acquire(own, own, None, 1)
