"""Tell the time and wait.  All other code gets a Clock as an argument, so that a test can control time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

TIMEX_BYTES, TIME_ERROR = 512, 5  # more than a `struct timex` has; adjtimex(2): the clock is not synchronised


class Handle(Protocol):
    """A scheduled call, which can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC.  They may jump."""

    def monotonic(self) -> float:
        """Return seconds since some moment.  They never jump."""

    def boottime(self) -> float:
        """Return seconds since some moment, those in which the machine was asleep among them.  They never jump."""

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle: ...


class RealClock:
    """Uses the machine's clock, and waits on the running event loop."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # called several times an op, so without a wrapper

    def boottime(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    async def sleep(self, seconds: float) -> None:
        import asyncio  # slow to import, and a command that only asks for the time does not need it

        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        import asyncio

        return asyncio.get_running_loop().call_later(seconds, callback)


def is_set_by_ntp() -> bool | None:
    """Return whether something keeps the machine's clock right, as the kernel knows; None where it does not tell."""
    import ctypes  # only `spyweb doctor` asks

    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state = adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))  # all zeros: it changes nothing
    return None if state < 0 else state != TIME_ERROR
