"""A start that is broken off."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.daemon.serve import unless_set
from spyweb.errors import StoreError


async def test_a_start_comes_to_its_end_unless_a_stop_is_asked_for() -> None:
    stop, story, is_held = asyncio.Event(), [], asyncio.Event()

    async def load() -> None:
        story.append("began")
        try:
            await is_held.wait()
            story.append("ended")
        except asyncio.CancelledError:
            story.append("broken off")
            raise

    asyncio.get_running_loop().call_soon(stop.set)
    assert not await unless_set(stop, load())
    is_held.set()
    assert await unless_set(asyncio.Event(), load())
    assert story == ["began", "broken off", "began", "ended"]


async def test_a_start_that_fails_tells_its_error_as_it_is() -> None:
    async def load() -> None:
        raise StoreError("no room")

    with pytest.raises(StoreError, match="no room"):
        await unless_set(asyncio.Event(), load())
