"""Wait for a future with a time limit, on a clock that is handed in."""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import TypeVar

from spyweb.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, future: Future[T]) -> bool:
    """Wait for the future at most this many seconds; return whether it is done.  It is never cancelled."""
    over: Future[None] = asyncio.get_running_loop().create_future()

    def wake(_future: Future[T] | None = None) -> None:
        set_done(over)

    timer = clock.call_later(seconds, wake)
    future.add_done_callback(wake)
    try:
        await over
    finally:
        timer.cancel()
        future.remove_done_callback(wake)
    return future.done()


def set_done(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
