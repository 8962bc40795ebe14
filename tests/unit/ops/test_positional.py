from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from spyweb.errors import OpError
from spyweb.lua.wire import Ext, Foreign
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import ask, make_call, make_world


async def test_reads_and_writes_are_counted_for_all_runs_together() -> None:
    world = make_world()
    for _ in range(3):
        await ask(make_call(world), "state.increment", b"n")
        await ask(make_call(world), "state.get", b"n")
    await ask(make_call(world), "state.exists", b"n")
    assert (world.metrics.state.writes, world.metrics.state.reads) == (3, 4)
    assert world.metrics.state.times.count == 7


async def test_what_a_call_took_is_noted_even_when_the_store_failed() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.close()
    world = make_world(store=store, clock=clock)
    await ask(make_call(world), "state.get", b"n")
    assert world.metrics.state.times.count == 1
    assert world.metrics.errors["state.get"] == 1


async def test_a_call_takes_until_the_store_has_answered() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    world = make_world(store=store, clock=clock)
    put = store.values.transform

    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(store.values, name)

        def transform(self, *arguments: object, **named: object) -> object:
            clock.advance(0.2)
            return put(*arguments, **named)  # type: ignore[arg-type]

    patient = MemoryStore(clock)
    patient.values = Slow()  # type: ignore[assignment]
    slow = make_world(store=patient, clock=clock)
    await ask(make_call(slow), "state.set", b"k", 1)
    await ask(make_call(world), "state.set", b"k", 1)
    assert 0.2 <= slow.metrics.state.times.percentile(99) < 0.23
    assert world.metrics.state.times.percentile(99) < 0.001


MANY: list[object] = [{b"n": 1.0, b"text": b"x" * 20} for _ in range(3_000)]
CONVERTED = [{b"n": 1, b"text": b"x" * 20}] * 3_000


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done in a thread."""
    done: list[str] = []

    async def to_thread(work: Callable[..., object], *arguments: object) -> object:
        done.append(work.__name__)
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    return done


async def test_a_large_value_is_converted_in_a_thread_and_a_small_one_at_once(in_threads: list[str]) -> None:
    call = make_call()
    assert await ask(call, "state.set", b"small", MANY[:100]) == [True]
    assert in_threads == []

    assert await ask(call, "state.set", b"k", MANY) == [True]
    assert await ask(call, "state.compare_swap", b"k", MANY, [1.0, MANY]) == [True]
    assert await ask(call, "state.list_push", b"k", MANY) == [3]
    assert len(in_threads) == 3
    assert await ask(call, "state.get", b"k") == [[1, CONVERTED, CONVERTED]]


async def test_a_large_value_of_a_table_first_call_is_converted_in_a_thread_too(in_threads: list[str]) -> None:
    call = make_call()
    of_key = {b"scope": b"s", b"key": b"k"}
    await ask(call, "state.set", {**of_key, b"value": MANY})
    ops = [{b"type": b"append", b"value": each} for each in (MANY, 2.0)]
    await ask(call, "state.update", {**of_key, b"ops": ops})

    assert len(in_threads) == 2
    assert await ask(call, "state.get", of_key) == [[*CONVERTED, CONVERTED, 2]]


async def test_what_is_wrong_in_a_large_value_is_told_as_in_a_small_one(in_threads: list[str]) -> None:
    call = make_call()
    wrong = [*MANY, Foreign(Ext.FOREIGN, "function")]
    reason = "a function can't be stored (at [3001])"

    assert await ask(call, "state.set", b"k", wrong) == [False, f"state.set: key 'k': {reason}"]
    with pytest.raises(OpError, match="a function can't be stored"):
        await ask(call, "state.set", {b"scope": b"s", b"key": b"k", b"value": wrong})
    with pytest.raises(OpError, match="a function can't be stored"):
        await ask(call, "state.update", {b"scope": b"s", b"key": b"k", b"ops": [{b"type": b"set", b"value": wrong}]})
    assert len(in_threads) == 3
