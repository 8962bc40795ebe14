"""Which entries are being written, and that a read of one of them sees that write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.errors import StoreClosed, StoreError
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.pending_writes import EVERYTHING, PendingWrites
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import putting
from tests.fakes.tables import Gate


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    store = await open_store(tmp_path / "spyweb.db", clock=clock)
    yield store
    await store.close()


def test_an_entry_is_written_until_the_last_write_has_ended() -> None:
    pending = PendingWrites()
    for _ in range(2):
        pending.begin(("a", b"k"))
    pending.end(("a", b"k"))
    assert pending.is_written("a", b"k")
    pending.end(("a", b"k"))
    assert not pending.is_written("a", b"k")


@pytest.mark.parametrize("subject", ["a", EVERYTHING])
def test_an_entry_is_written_with_its_namespace_and_with_all(subject: object) -> None:
    pending = PendingWrites()
    pending.begin(subject)
    assert pending.is_written("a", b"k")


async def test_a_read_waits_for_the_commit_of_what_was_put_before(store: Store) -> None:
    gate = Gate()
    held = store._connections.writer.submit(OpKind.WRITE, gate.hold)
    await asyncio.to_thread(gate.wait_until_entered)
    store.values.set("a", b"k", b"v")
    reading = store.values.get("a", b"k")
    await asyncio.sleep(0)
    assert not reading.done()
    gate.open()
    await held
    assert await reading == b"v"


async def test_all_writes_of_an_entry_are_seen(store: Store, clock: FakeClock) -> None:
    await store.values.set("a", b"k", b"1")
    await store.values.transform("a", b"k", putting(2))
    assert await store.values.get("a", b"k") == 2
    await store.values.increment("a", b"k", 0, 1)
    assert await store.values.get("a", b"k") == b"3"
    await store.values.move("a", "b")
    assert await store.values.get("a", b"k") is None
    assert await store.values.get("b", b"k") == b"3"
    await store.values.clear("b")
    assert await store.values.get("b", b"k") is None


async def test_an_entry_that_expires_is_read_no_more(store: Store, clock: FakeClock) -> None:
    await store.values.set("a", b"k", b"v")
    await store.values.expire("a", b"k", clock.now_ms() + 1000)
    assert await store.values.get("a", b"k") == b"v"
    clock.advance(2)
    assert await store.values.get("a", b"k") is None


async def test_a_write_that_fails_is_not_read(store: Store) -> None:
    await store.values.set("a", b"k", b"v")
    await store._connections.writer.submit(
        OpKind.READ, lambda connection: connection.execute("PRAGMA query_only = ON").close()
    )
    with pytest.raises(StoreError):
        await store.values.set("a", b"k", b"never")
    assert await store.values.get("a", b"k") == b"v"


async def test_a_closed_store_answers_nothing(store: Store) -> None:
    await store.values.set("a", b"k", b"v")
    await store.close()
    with pytest.raises(StoreClosed):
        await store.values.set("a", b"k", b"v")
    with pytest.raises(StoreClosed):
        await store.values.get("a", b"k")
