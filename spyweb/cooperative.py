"""Long work on the event loop, in slices between which others have their turn."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from spyweb.clock import Clock

T = TypeVar("T")
Steps = Generator[None, None, T]  # each is short; what it returns is the result

SLICE = 0.002  # seconds; several cycles may be at it


async def in_slices(clock: Clock, steps: Iterator[None]) -> None:
    """Each step is short."""
    began = clock.monotonic()
    for _ in steps:
        if clock.monotonic() - began >= SLICE:
            await clock.sleep(0)
            began = clock.monotonic()


async def finish(clock: Clock, steps: Steps[T]) -> T:
    """Take all steps, and return their result."""
    results: list[T] = []

    def kept() -> Iterator[None]:
        results.append((yield from steps))

    await in_slices(clock, kept())
    return results[0]


def at_once(read: Callable[[object], T]) -> Callable[[object], Steps[T]]:
    """Make a single step of what takes no time."""

    def read_in_a_step(value: object) -> Steps[T]:
        yield from ()
        return read(value)

    return read_in_a_step


def at_a_stretch(steps: Steps[T]) -> T:
    """Take all steps where nobody waits, and return their result."""
    results: list[T] = []

    def kept() -> Iterator[None]:
        results.append((yield from steps))

    for _ in kept():
        pass
    return results[0]
