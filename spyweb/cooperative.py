"""Share the event loop: cut long work into steps between which other tasks run, and wait with a limit."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Generator
from typing import TypeVar

from spyweb.clock import Clock

T = TypeVar("T")
Steps = Generator[None, None, T]  # each step is short; what it returns is the result

SLICE = 0.002  # seconds of work before others have their turn; several tasks may be working in slices


async def run_in_slices(clock: Clock, steps: Steps[T]) -> T:
    """Take all steps, yielding to the loop after each slice of them, and return their result."""
    began = clock.monotonic()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        if clock.monotonic() - began >= SLICE:
            await clock.sleep(0)
            began = clock.monotonic()


def run_at_once(steps: Steps[T]) -> T:
    """Take all steps without yielding, when no other task waits, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


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
