from __future__ import annotations

from spyweb.ops import catalog
from spyweb.store.memory import MemoryStore
from tests.fakes.clock import FakeClock
from tests.fakes.ops import ask, make_call, make_world

assert catalog.names()


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
