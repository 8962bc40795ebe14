"""Requests to one host at a time, over all monitors."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.errors import FetchError
from spyweb.monitor.exchange import MOST_WAITING, HostSlots


async def test_so_many_requests_to_a_host_are_under_way_and_the_others_follow_in_their_order() -> None:
    slots, story = HostSlots(2), list[str]()
    ends = [asyncio.Event() for _ in range(5)]

    async def fetch(number: int, host: str) -> None:
        async with slots.slot(host):
            story.append(f"{host}{number}")
            await ends[number].wait()

    async def turn() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        fetches = [tasks.create_task(fetch(number, "a" if number < 4 else "b")) for number in range(5)]
        await turn()
        assert story == ["a0", "a1", "b4"]
        fetches[2].cancel()
        await turn()
        ends[1].set()
        await turn()
        assert story == ["a0", "a1", "b4", "a3"]
        for end in ends:
            end.set()
    assert slots._hosts == {}


async def test_the_line_before_a_host_has_an_end() -> None:
    slots = HostSlots(1)

    async def fetch() -> None:
        async with slots.slot("a"):
            await asyncio.Event().wait()

    waiting = [asyncio.create_task(fetch()) for _ in range(1 + MOST_WAITING)]
    await asyncio.sleep(0)
    reason = r"^1,000 requests of monitors wait for a already: \[http\] per_host = 1$"
    with pytest.raises(FetchError, match=reason) as raised:
        async with slots.slot("a"):
            pass
    assert raised.value.kind == "connect"
    for each in waiting:
        each.cancel()
