"""Watching changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from spyweb.errors import Refused
from spyweb.model import ChangeKind
from spyweb.service.state import HEARTBEAT, MOST_WAITING, MOST_WAITING_BYTES, ChangeQueue, StateService
from spyweb.settings import StateSettings
from spyweb.store.model.entries import Watch
from spyweb.views.state import ChangeView
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import put, until_told


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


def watch(
    store: MemoryStore, clock: FakeClock, namespace: str | None, pattern: bytes
) -> AsyncGenerator[ChangeView | None, None]:
    return StateService(store=store, clock=clock, limits=StateSettings()).watch(namespace, pattern)


def shown(change: ChangeView | None) -> str:
    return f"{change.kind} {change.namespace} {change.key}" if change else "alive"


async def next_of(changes: AsyncGenerator[ChangeView | None, None]) -> str:
    return shown(await anext(changes))


async def test_a_watch_says_when_it_has_begun_and_then_each_change(clock: FakeClock, store: MemoryStore) -> None:
    async with aclosing(watch(store, clock, None, b"a*")) as changes:
        assert await anext(changes) is None
        await put(store, b"a1", 1)
        await put(store, b"b", 1)
        await put(store, b"a2", 1, namespace="scope:x")
        assert [shown(await anext(changes)) for _ in range(2)] == ["created state a1", "created scope:x a2"]


async def test_one_namespace_is_not_another_that_begins_like_it(clock: FakeClock, store: MemoryStore) -> None:
    async with aclosing(watch(store, clock, "state", b"*")) as changes:
        await anext(changes)
        await put(store, b"a", 1, namespace="state@prod")
        await put(store, b"b", 1)
        assert shown(await anext(changes)) == "created state b"


async def test_a_quiet_watch_gives_signs_of_life(clock: FakeClock, store: MemoryStore) -> None:
    clock = FakeClock()
    async with aclosing(watch(MemoryStore(clock), clock, None, b"*")) as changes:
        await anext(changes)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(next_of(changes))
            await clock.turn(HEARTBEAT - 1)
            assert not waiting.done()
            await clock.turn(1)
            assert waiting.result() == "alive"


async def test_who_reads_too_slowly_is_let_go(clock: FakeClock, store: MemoryStore) -> None:
    async with aclosing(watch(store, clock, None, b"*")) as changes:
        await anext(changes)
        for _ in range(MOST_WAITING + 1):
            await put(store, b"a", 1)
        await until_told()
        with pytest.raises(Refused, match="faster than they are taken"):
            await anext(changes)


async def test_nothing_is_kept_for_who_is_late(clock: FakeClock, store: MemoryStore) -> None:
    changes = ChangeQueue()
    wanted = Watch(namespace="state", is_prefix=False, key=b"*", kinds=frozenset(ChangeKind))
    store.events.follow(wanted, changes.hear)
    for number in range(20):
        await put(store, b"%d" % number, b"x" * (MOST_WAITING_BYTES // 5))
        await until_told()
        assert changes.size <= MOST_WAITING_BYTES
    assert changes.is_late
    assert (changes.size, changes.waiting.qsize()) == (0, 1)


async def test_who_reads_large_values_too_slowly_is_let_go_sooner(clock: FakeClock, store: MemoryStore) -> None:
    async with aclosing(watch(store, clock, None, b"*")) as changes:
        await anext(changes)
        for number in range(5):
            await put(store, b"%d" % number, b"x" * (MOST_WAITING_BYTES - 10))  # and 10 for the key and no value
            await until_told()
            assert shown(await anext(changes)) == f"created state {number}"
        for number in range(5, 7):
            await put(store, b"%d" % number, b"x" * (MOST_WAITING_BYTES // 2))
        await until_told()
        with pytest.raises(Refused, match="faster than they are taken"):
            await anext(changes)


async def test_who_has_gone_is_told_nothing(clock: FakeClock, store: MemoryStore) -> None:
    async with aclosing(watch(store, clock, None, b"*")) as changes:
        await anext(changes)
    await put(store, b"a", 1)
    assert clock.pending == 0
