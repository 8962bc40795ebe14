"""What a dry run sees of the stored values: as if it had written them, and nothing of it is in the store."""

from __future__ import annotations

import asyncio
from typing import Any

from spyweb.model import Value
from spyweb.store.dry_values import DryValues
from spyweb.store.model.entries import KEEP, Drop, Entry, Order, Put
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.memory_store import MemoryStore

SPACE = "state"


async def fill(store: MemoryStore, clock: FakeClock) -> None:
    for number, key in enumerate((b"b", b"a", b"n", b"old")):
        await store.values.set(SPACE, key, b"%d" % number)
        clock.advance(1)
    await store.values.expire(SPACE, b"old", START_MS + 10_000)


def appended(entry: Entry | None) -> Put:
    return Put([*(entry.value if entry and isinstance(entry.value, list) else []), 1.0, {b"x": True}], KEEP, "done")


async def go_through(values: Any, clock: FakeClock) -> list[object]:
    """Return what each of these calls gives."""

    async def items(order: Order) -> list[tuple[bytes, Value]]:
        found: list[tuple[bytes, Entry]] = await values.gather(SPACE, b"", list, order=order)
        return [(key, entry.value) for key, entry in found]

    seen: list[Any] = [await values.increment(SPACE, b"n", 5, 40), await values.increment(SPACE, b"new", 5, 1)]
    seen += [await values.set(SPACE, b"a", b"x"), await values.get(SPACE, b"a"), await values.delete(SPACE, b"b")]
    seen += [await values.get(SPACE, b"b"), await values.get(SPACE, b"none"), await values.keys(SPACE, b"*")]
    seen += [await values.transform(SPACE, b"list", appended), await values.transform(SPACE, b"list", appended)]
    seen += [await values.read(SPACE, b"list"), await items(Order.KEY)]
    seen += [await values.expire(SPACE, b"a", clock.now_ms() + 5_000), await values.expire(SPACE, b"none", None)]
    clock.advance(20)
    seen += [await values.get(SPACE, b"a"), await values.get(SPACE, b"old"), await values.keys(SPACE, b"[a-o]*")]
    seen += [await values.transform(SPACE, b"n", lambda entry: Drop(entry and entry.value)), await items(Order.CREATED)]
    return [*seen, await values.clear(SPACE, b"n*"), await values.keys(SPACE)]


async def test_it_answers_as_the_store_would_and_leaves_the_store_as_it_was() -> None:
    clocks = FakeClock(), FakeClock()
    stores = [MemoryStore(clock) for clock in clocks]
    for store, clock in zip(stores, clocks, strict=True):
        await fill(store, clock)
    real, dry = stores
    before = await dry.values.gather(SPACE, b"", list)
    assert await go_through(DryValues(dry.values, clocks[1]), clocks[1]) == await go_through(real.values, clocks[0])
    clocks[1].jump(-20)
    assert await dry.values.gather(SPACE, b"", list) == before


async def test_of_two_writes_at_once_none_is_lost() -> None:
    store = MemoryStore(FakeClock())
    values = DryValues(store.values, FakeClock())
    assert sorted(await asyncio.gather(*(values.increment(SPACE, b"n", 0, 1) for _ in range(3)))) == [1, 2, 3]
