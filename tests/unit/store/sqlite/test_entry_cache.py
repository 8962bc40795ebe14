"""What is answered from memory, and what never is: it would be older than the last commit, or not for memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spyweb.model import Value
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.entry_cache import LONGEST_KEY, LONGEST_VALUE, MOST_ENTRIES, EntryCache
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import put, putting
from tests.fakes.tables import Gate

KEY = b"k" * 32


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    store = await open_store(tmp_path / "spyweb.db", clock=clock)
    yield store
    await store.close()


async def is_cached(store: Store, key: bytes = b"k") -> bool:
    """Whether a read is answered at once; one that is not is awaited."""
    reading = store.values.get("a", key)
    was_done = reading.done()
    await reading
    return was_done


async def test_a_value_is_read_from_the_database_once(store: Store) -> None:
    await put(store, b"k", 7, namespace="a")
    assert not await is_cached(store)
    assert await is_cached(store)
    assert await store.values.get("a", b"k") == 7


async def test_that_there_is_nothing_is_known_too(store: Store) -> None:
    assert not await is_cached(store)
    assert await is_cached(store)
    assert await store.values.get("a", b"k") is None


async def test_a_text_that_was_set_is_known_once_it_is_committed(store: Store) -> None:
    setting = store.values.set("a", b"k", b"v")
    assert not await is_cached(store)
    await setting
    assert await is_cached(store)
    assert await store.values.get("a", b"k") == b"v"


WRITES: dict[str, Callable[[Store], Awaitable[object]]] = {
    "set": lambda store: store.values.set("a", b"k", b"2"),
    "transform": lambda store: store.values.transform("a", b"k", putting(b"2")),
    "delete": lambda store: store.values.delete("a", b"k"),
    "increment": lambda store: store.values.increment("a", b"k", 0, 1),
    "expire": lambda store: store.values.expire("a", b"k", 1),
    "clear": lambda store: store.values.clear("a"),
    "move": lambda store: store.values.move("a", "b"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_each_write_is_seen(store: Store, write: Callable[[Store], Awaitable[object]]) -> None:
    await store.values.set("a", b"k", b"1")
    assert await store.values.get("a", b"k") == b"1"
    await write(store)
    entry = await store.values.read("a", b"k")
    assert await store.values.get("a", b"k") == (entry.value if entry else None) != b"1"


async def test_a_load_is_seen(store: Store) -> None:
    await store.values.set("a", b"k", b"1")
    exported = [entry async for entry in store.values.export()]
    await store.values.set("a", b"k", b"2")
    await store.values.load(exported, replace=True)
    assert await store.values.get("a", b"k") == b"1"


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


@pytest.mark.parametrize("value", [[1], {b"a": 1}, b"v" * (LONGEST_VALUE + 1)], ids=["list", "table", "long"])
async def test_tables_and_long_texts_are_read_each_time(store: Store, value: Value) -> None:
    await put(store, b"k", value, namespace="a")
    for _ in range(2):
        assert not await is_cached(store)


async def test_a_long_key_is_read_each_time(store: Store) -> None:
    key = b"k" * (LONGEST_KEY + 1)
    await store.values.set("a", key, b"v")
    for _ in range(2):
        assert not await is_cached(store, key)


async def test_what_expires_is_read_each_time(store: Store, clock: FakeClock) -> None:
    await store.values.set("a", b"k", b"v")
    await store.values.expire("a", b"k", clock.now_ms() + 1000)
    for _ in range(2):
        assert not await is_cached(store)


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


def test_a_full_cache_drops_the_older_half() -> None:
    cache = EntryCache()
    for number in range(MOST_ENTRIES + 1):
        cache.put(("a", b"%d" % number), number)
    assert not cache.find(("a", b"0")).is_known
    assert cache.find(("a", b"%d" % MOST_ENTRIES)).value == MOST_ENTRIES
    assert len(cache._values) <= MOST_ENTRIES
