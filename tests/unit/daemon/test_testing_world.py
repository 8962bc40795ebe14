from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from spyweb.daemon.testing_world import LazyHost
from spyweb.errors import OpError, StoreError
from spyweb.lua.session import Lineage
from spyweb.ops.world import World


class Harness:
    """Where worlds come and go."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.lines: list[str] = []
        self.refusal: Exception | None = None
        self.trouble_at_the_end: Exception | None = None

    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        if self.refusal:
            raise self.refusal
        await asyncio.sleep(0)
        self.story.append("opened")
        yield cast(World, object())
        self.story.append("closed")
        if self.trouble_at_the_end:
            raise self.trouble_at_the_end

    def log(self, level: str, text: bytes) -> None:
        self.lines.append(f"{level}: {text.decode()}")

    def host(self, tasks: TaskGroup) -> LazyHost:
        return LazyHost(self.world(), lambda _: Echo(self), self.log, tasks)


async def ask(host: LazyHost) -> None:
    await host.op("first", [])


class Echo:
    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    def log(self, level: str, text: bytes) -> None:
        raise AssertionError

    def end_branch(self, lineage: Lineage) -> None: ...

    async def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Sequence[object]:
        self._harness.story.append(name)
        return arguments


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def test_a_test_that_asks_for_nothing_has_no_world(harness: Harness) -> None:
    async with TaskGroup() as tasks:
        host = harness.host(tasks)
        host.log("info", b"heard")
        await host.close()

    assert (harness.story, harness.lines) == ([], ["info: heard"])


async def test_the_first_op_waits_for_the_world_and_all_have_the_same(harness: Harness) -> None:
    async with TaskGroup() as tasks:
        host = harness.host(tasks)
        assert await host.op("first", [1]) == [1]
        assert await host.op("second", [2]) == [2]
        await host.close()

    assert harness.story == ["opened", "first", "second", "closed"]


async def test_an_op_is_told_why_there_is_no_world(harness: Harness) -> None:
    harness.refusal = OSError(28, "No space left on device")
    async with TaskGroup() as tasks:
        host = harness.host(tasks)
        with pytest.raises(OpError, match=r"store_set: there is no temporary database: .*No space left"):
            await host.op("store_set", [])
        with pytest.raises(OpError):
            await host.op("store_get", [])
        await host.close()


async def test_trouble_at_the_end_does_not_end_the_other_tests(harness: Harness) -> None:
    harness.trouble_at_the_end = StoreError("the disk is gone")
    async with TaskGroup() as tasks:
        host = harness.host(tasks)
        await host.op("first", [])
        await host.close()

    assert harness.lines == ["error: the temporary database was not closed: the disk is gone"]


async def test_an_op_that_is_cancelled_leaves_the_world_to_be_closed(harness: Harness) -> None:
    async with TaskGroup() as tasks:
        host = harness.host(tasks)
        op = tasks.create_task(ask(host))
        await asyncio.sleep(0)
        op.cancel()
        await asyncio.sleep(0)
        await host.close()

    assert harness.story == ["opened", "closed"]
