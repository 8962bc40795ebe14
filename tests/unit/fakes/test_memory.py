"""What the store of dictionaries promises beside the contract: it never makes anybody wait."""

from __future__ import annotations

from msgspec import structs

from spyweb.errors import StoreError
from spyweb.store.protocol import GLOBAL, Change
from tests.fakes.changes import make_run
from tests.fakes.clock import FakeClock
from tests.fakes.memory.memory import MemoryStore


async def test_every_future_is_done_when_it_is_given() -> None:
    store = MemoryStore(FakeClock())

    assert store.values.set(GLOBAL, b"k", b"1").done()
    assert store.values.get(GLOBAL, b"k").result() == b"1"
    assert store.runs.record(Change(new=[make_run()])).result() == [1]


async def test_what_is_refused_is_not_counted_as_written() -> None:
    store = MemoryStore(FakeClock())
    refused = store.values.increment(GLOBAL, b"k", (1 << 63) - 1, 1)

    assert isinstance(refused.exception(), StoreError)
    assert store.stats().writes == 0


async def test_a_trigger_is_kept_as_it_was_when_it_was_recorded() -> None:
    store = MemoryStore(FakeClock())
    trigger: dict[str, object] = {"type": "manual"}
    await store.runs.record(Change(new=[structs.replace(make_run(), trigger=trigger)]))
    trigger["type"] = "changed"

    assert (await store.runs.list())[0].trigger == {"type": "manual"}
