"""A process that adds to entries, each of which all nodes of a cluster write, and to what is its own.

    python -m tests.fakes.adding_node URL SCHEMA NODE

It prints how many additions were acknowledged, and how many refused.
"""

from __future__ import annotations

import asyncio
import random
import sys

from spyweb.clock import RealClock
from spyweb.errors import StoreError
from spyweb.model import HistoryRule
from spyweb.store.model.entries import Drop, Entry, Put
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres
from spyweb.store.sqlite.store import Store

SHARED = "state"
OWN = "scope:own"  # keeps past versions
KEYS, CALLERS, ADDITIONS = 8, 16, 40


async def add(store: Store, node: str, caller: int) -> int:
    """Return how many additions were acknowledged."""
    chance, own = random.Random(f"{node} {caller}"), f"{node} {caller}".encode()
    done = 0
    for number in range(ADDITIONS):
        try:
            await store.values.increment(SHARED, b"%d" % chance.randrange(KEYS), 0, 1)
            done += 1
        except StoreError as error:
            sys.stderr.write(f"{error}\n")
        await beside(store, own, number % 5)
    return done


async def beside(store: Store, own: bytes, turn: int) -> None:
    """Write what shares commits with additions: an entry that expires, or comes and goes, and what is no entry."""

    def come_or_go(entry: Entry | None) -> Put | Drop:
        return Drop() if entry else Put(b"here", expires_ms=1)

    if turn == 0:
        await store.values.transform(OWN, own, come_or_go)
    elif turn == 1:
        await store.values.get(SHARED, b"0")
    elif turn == 2:
        await store.locks.acquire(own, own, None, 1)


async def main() -> None:
    url, schema, node = sys.argv[1:]
    store = await open_postgres(
        PgServer(url=url, schema=schema), clock=RealClock(), history={OWN: HistoryRule(versions=2)}, node=int(node)
    )
    done = await asyncio.gather(*(add(store, node, caller) for caller in range(CALLERS)))
    await store.close()
    sys.stdout.write(f"{sum(done)} {CALLERS * ADDITIONS - sum(done)}\n")


if __name__ == "__main__":
    asyncio.run(main())
