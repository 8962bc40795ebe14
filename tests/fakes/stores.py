"""Open every kind of store, for tests that hold for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from spyweb.clock import Clock
from spyweb.model import Durability, HistoryRule, Value
from spyweb.store.model.entries import (
    KEEP,
    NO_HISTORY,
    Addition,
    Drop,
    Entry,
    HistoryRules,
    Keep,
    Order,
    Put,
    Replacement,
    Transform,
)
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.store import Store, open_in_memory, open_store
from tests.fakes.postgres import empty_schema, fresh_schema

# A file, an encrypted one, `url = "memory:"`, a schema, an encrypted one.
KINDS = ["sqlite", "sealed", "memory", "postgres", pytest.param("sealed postgres", marks=pytest.mark.deep)]
ENGINES = ["sqlite", "postgres"]  # enough for what is neither encrypted nor kept back from a connection in memory
KEY = bytes(range(32))

LOGGED = "scope:logged"  # keeps three past versions of each key
AGED = "scope:aged"  # keeps past versions for an hour
RULES: HistoryRules = {LOGGED: HistoryRule(versions=3), AGED: HistoryRule(age_ms=3_600_000)}


@asynccontextmanager
async def opened(kind: str, path: Path, clock: Clock, history: HistoryRules = NO_HISTORY) -> AsyncIterator[Store]:
    key = KEY if kind.startswith("sealed") else None
    with ExitStack() as stack:
        if kind == "memory":
            store = await open_in_memory(clock=clock, history=history)
        elif kind.endswith("postgres"):
            url, schema = stack.enter_context(empty_schema())
            server, relaxed = PgServer(url=url, schema=schema), Durability.NORMAL
            store = await open_postgres(server, clock=clock, durability=relaxed, key=key, history=history)
        else:
            store = await open_store(path, clock=clock, durability=Durability.NORMAL, key=key, history=history)
        try:
            yield store
        finally:
            await store.close()


async def become_node(store: Store, number: int) -> None:
    """Have a store write as a node, which is on record then."""
    assert store.nodes
    joining = "INSERT INTO lane (node, state) VALUES (?, 'a') ON CONFLICT DO NOTHING"
    await store.nodes.heart.submit(OpKind.WRITE, lambda connection: connection.execute(joining, (number,)))
    store.nodes.me = number
    await store.nodes._be_fenced()


@contextmanager
def fresh_server() -> Iterator[PgServer]:
    """Yield a schema of the run's PostgreSQL in which there is nothing yet."""
    with fresh_schema() as (url, schema):
        yield PgServer(url=url, schema=schema)


def putting(value: Value, expires_ms: int | Keep | None = None) -> Transform:
    return lambda entry: Put(value, expires_ms)


def dropping() -> Transform:
    return lambda entry: Drop()


def adding(number: int) -> Transform:
    """Add to an integer, keep the expiry and return the sum."""

    def add(entry: Entry | None) -> Put:
        before = entry.value if entry else 0
        assert isinstance(before, int)
        return Put(before + number, KEEP, before + number)

    return add


def counting(number: int) -> Addition:
    """Add as `adding` does, in a form that a store may apply by itself."""
    return Addition(number, lambda total: total, adding(number))


async def put(
    store: Store, key: bytes, value: Value, *, namespace: str = "state", expires_ms: int | None = None
) -> None:
    await store.values.transform(namespace, key, Replacement(lambda: Put(value, expires_ms)))


async def look(store: Store, key: bytes, *, namespace: str = "state") -> Value:
    """Return the value of a key; None when there is none."""
    entry = await store.values.read(namespace, key)
    return entry.value if entry else None


async def all_items(
    store: Store, namespace: str, prefix: bytes = b"", *, order: Order = Order.KEY, largest: int | None = None
) -> list[tuple[bytes, Entry]]:
    return await store.values.gather(namespace, prefix, list, order=order, largest=largest)


async def until_told() -> None:
    """Let callbacks that were put off to the loop's next round be called."""
    for _ in range(3):
        await asyncio.sleep(0)
