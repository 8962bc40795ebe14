"""Which connection answers what, what a question waits for, and what is answered from memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spyweb.model import Value
from spyweb.store.model.entries import Entry, PortableEntry
from spyweb.store.sqlite.batch import LONGEST_KEY, LONGEST_VALUE, MOST_CACHED, OpKind, PendingWrites
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.alert_services import until
from tests.fakes.clock import FakeClock
from tests.fakes.findings import message
from tests.fakes.stores import put, putting
from tests.fakes.tables import Gate


async def test_a_read_waits_only_for_writes_of_its_key(store: Store) -> None:
    await put(store, b"k", 1)
    gate = Gate()
    held = store._connections.writer.submit(OpKind.WRITE, gate.hold)
    await asyncio.to_thread(gate.wait_until_entered)
    write = store.values.transform("state", b"other", putting(1))

    entry = await store.values.read("state", b"k")
    waiting = store.values.read("state", b"other")
    assert entry
    assert entry.value == 1
    assert not waiting.done()

    gate.open()
    await held
    await write
    assert await waiting


async def test_a_dead_message_that_is_to_be_sent_again_before_it_is_pruned_stays(
    store: Store, clock: FakeClock
) -> None:
    (dead,) = await store.outbox.add([message()])
    await store.outbox.give_up(dead, error="refused")
    gate = Gate()
    held = store._connections.writer.submit(OpKind.WRITE, gate.hold)
    retried = store.outbox.retry(dead)
    pruned = asyncio.ensure_future(store.outbox.prune(older_than_ms=clock.now_ms() + 1))
    await until(lambda: store.stats().pending == 3)  # it was found by a reader, for which it is dead

    gate.open()
    await asyncio.gather(held, retried, pruned)
    assert [each.id for each in await store.outbox.unsent(None, 10)] == [dead]


KEY = b"k" * 32


async def is_cached(store: Store, key: bytes = b"k") -> bool:
    """Whether a read is answered at once; one that is not is awaited."""
    reading = store.values.get("a", key)
    was_done = reading.done()
    await reading
    return was_done


async def test_a_value_is_read_from_the_database_once_and_so_is_that_there_is_none(store: Store) -> None:
    assert [await is_cached(store, b"none") for _ in range(2)] == [False, True]
    await put(store, b"k", 7, namespace="a")
    assert not await is_cached(store)
    assert await is_cached(store)
    assert await store.values.get("a", b"k") == 7


async def test_a_text_that_was_set_is_known_once_it_is_committed(store: Store) -> None:
    setting = store.values.set("a", b"k", b"v")
    assert not await is_cached(store)
    await setting
    assert await is_cached(store)
    assert await store.values.get("a", b"k") == b"v"


LOADED = PortableEntry(namespace="a", key=b"k", entry=Entry(value=b"2", version=1, created_ms=1, updated_ms=1))
WRITES: dict[str, Callable[[Store], Awaitable[object]]] = {
    "set": lambda store: store.values.set("a", b"k", b"2"),
    "transform": lambda store: store.values.transform("a", b"k", putting(b"2")),
    "delete": lambda store: store.values.delete("a", b"k"),
    "increment": lambda store: store.values.increment("a", b"k", 0, 1),
    "expire": lambda store: store.values.expire("a", b"k", 1),
    "clear": lambda store: store.values.clear("a"),
    "move": lambda store: store.values.move("a", "b"),
    "load": lambda store: store.values.load([LOADED], replace=True),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_each_write_is_seen(store: Store, write: Callable[[Store], Awaitable[object]]) -> None:
    await store.values.set("a", b"k", b"1")
    assert await store.values.get("a", b"k") == b"1"
    await write(store)
    entry = await store.values.read("a", b"k")
    assert await store.values.get("a", b"k") == (entry.value if entry else None) != b"1"


async def test_a_write_that_is_cancelled_before_its_batch_is_not_known(store: Store) -> None:
    await store.values.set("a", b"k", b"1")
    store.values.set("a", b"k", b"never").cancel()
    await store.values.set("a", b"other", b"")
    assert await store.values.get("a", b"k") == b"1"


async def test_a_read_that_a_write_overtakes_is_not_kept(store: Store) -> None:
    gate = Gate()
    held = store._connections.reader.submit(OpKind.READ, gate.hold)
    await asyncio.to_thread(gate.wait_until_entered)
    reading = store.values.get("a", b"k")
    await store.values.transform("a", b"k", putting(2))
    gate.open()
    await held
    assert await reading == 2
    assert not await is_cached(store)


@pytest.mark.parametrize(
    ("key", "value", "expires_ms"),
    [
        (b"k", [1], None),
        (b"k", {b"a": 1}, None),
        (b"k", b"v" * (LONGEST_VALUE + 1), None),
        (b"k" * (LONGEST_KEY + 1), b"v", None),
        (b"k", b"v", 1 << 60),
    ],
    ids=["list", "table", "long text", "long key", "expires"],
)
async def test_what_may_change_is_long_or_expires_is_read_each_time(
    store: Store, key: bytes, value: Value, expires_ms: int | None
) -> None:
    await put(store, key, value, namespace="a", expires_ms=expires_ms)
    for _ in range(2):
        assert not await is_cached(store, key)


async def test_an_encrypted_store_keeps_nothing_in_the_clear(tmp_path: Path, clock: FakeClock) -> None:
    store = await open_store(tmp_path / "sealed.db", clock=clock, key=KEY)
    await store.values.set("a", b"k", b"v")
    for _ in range(2):
        assert not await is_cached(store)
    await store.close()


async def test_a_store_that_only_looks_keeps_nothing_since_another_process_writes(
    tmp_path: Path, store: Store, clock: FakeClock
) -> None:
    looking = await open_store(tmp_path / "spyweb.db", clock=clock, read_only=True)
    assert await looking.values.get("a", b"k") is None
    await store.values.set("a", b"k", b"v")
    assert await looking.values.get("a", b"k") == b"v"
    await looking.close()


async def test_a_write_that_is_refused_is_not_known(store: Store) -> None:
    await store.values.set("a", b"k", b"1")
    await store._connections.writer.submit(
        OpKind.READ, lambda connection: connection.execute("PRAGMA query_only = ON").close()
    )
    with suppress(Exception):
        await store.values.set("a", b"k", b"never")
    assert await store.values.get("a", b"k") == b"1"


def test_a_full_cache_forgets_the_older_half() -> None:
    pending = PendingWrites()
    for number in range(MOST_CACHED + 1):
        pending.cache("a", b"%d" % number).learn(number)
    assert not pending.cached("a", b"0").is_known
    assert pending.cached("a", b"%d" % MOST_CACHED).value == MOST_CACHED
    assert len(pending._cached) <= MOST_CACHED
