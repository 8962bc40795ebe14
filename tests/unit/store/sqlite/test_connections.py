"""Which connection answers what, and what a question waits for."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.errors import StoreError
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import chain
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import put, putting
from tests.fakes.tables import Gate


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    yield store
    await store.close()


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


async def test_a_question_waits_for_all_writes_before_it_and_not_for_later_ones(store: Store) -> None:
    gate = Gate()
    held = store._connections.writer.submit(OpKind.WRITE, gate.hold)
    await asyncio.to_thread(gate.wait_until_entered)
    store.values.transform("state", b"a", putting(1))
    asked = store.values.keys("state")
    await asyncio.sleep(0)
    assert not asked.done()

    gate.open()
    await held
    assert await asked == [b"a"]


async def test_a_chain_gives_what_the_second_comes_to() -> None:
    first: Future[None] = asyncio.get_running_loop().create_future()
    second: Future[int] = asyncio.get_running_loop().create_future()
    result = chain(first, lambda: second)

    first.set_result(None)
    await asyncio.sleep(0)
    second.set_result(7)

    assert await result == 7


@pytest.mark.parametrize("which", [0, 1])
async def test_a_chain_fails_with_either(which: int) -> None:
    links: list[Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(2)]
    result = chain(links[0], lambda: links[1])
    if which:
        links[0].set_result(None)
    links[which].set_exception(StoreError("broken"))

    with pytest.raises(StoreError, match="broken"):
        await result


async def test_a_chain_whose_second_link_can_not_be_begun_fails() -> None:
    def follow() -> Future[int]:
        raise MemoryError

    first: Future[None] = asyncio.get_running_loop().create_future()
    result = chain(first, follow)
    first.set_result(None)

    with pytest.raises(StoreError, match="out of memory"):
        await asyncio.wait_for(result, 5)


@pytest.mark.parametrize("when", ["before", "between"])
async def test_a_chain_that_nobody_wants_any_more_ends_quietly(when: str) -> None:
    first: Future[None] = asyncio.get_running_loop().create_future()
    second: Future[int] = asyncio.get_running_loop().create_future()
    begun: list[int] = []

    def follow() -> Future[int]:
        begun.append(1)
        return second

    result = chain(first, follow)
    if when == "before":
        result.cancel()
    first.set_result(None)
    await asyncio.sleep(0)
    result.cancel()
    second.set_result(7)
    await asyncio.sleep(0)

    assert result.cancelled()
    assert len(begun) == (when == "between")
