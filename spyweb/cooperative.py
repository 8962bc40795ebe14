"""Cut long work on the event loop into steps, so that other tasks get their turn in between."""

from __future__ import annotations

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
