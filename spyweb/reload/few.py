"""Doing something with each of many things, with a few of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def few_at_once(count: int, call: Callable[[T], Awaitable[R]], things: Sequence[T]) -> list[R]:
    """What `call` gives for each, in their order.  As many tasks as calls: one for each thing, and a gate, would leave
    half a kilobyte behind for every job that is loaded.  Where one of them raises, no more are begun.
    """
    found: dict[int, R] = {}
    left = iter(enumerate(things))

    async def work() -> None:
        for index, thing in left:
            found[index] = await call(thing)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(count, len(things))):
                group.create_task(work())
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [found[index] for index in range(len(things))]
