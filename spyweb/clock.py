"""Ask the time and wait.  Nothing else does: it is handed a Clock, so that a test can turn it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    """Stands for a call that is still to come."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC.  They may jump."""

    def monotonic(self) -> float:
        """Return seconds since some moment.  They never jump."""

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle: ...


class RealClock:
    """Asks the machine's clock, and waits on the running event loop."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # asked several times an op: as it is, with no call around it

    async def sleep(self, seconds: float) -> None:
        import asyncio  # a command asks for the time, and does without

        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        import asyncio

        return asyncio.get_running_loop().call_later(seconds, callback)
