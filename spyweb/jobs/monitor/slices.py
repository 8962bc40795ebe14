"""Long work on the event loop, in slices between which others have their turn."""

from __future__ import annotations

from collections.abc import Iterator

from spyweb.clock import Clock

SLICE = 0.002  # seconds; several cycles may be at it


async def in_slices(clock: Clock, steps: Iterator[None]) -> None:
    """Each step is short."""
    began = clock.monotonic()
    for _ in steps:
        if clock.monotonic() - began >= SLICE:
            await clock.sleep(0)
            began = clock.monotonic()
