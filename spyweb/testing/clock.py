"""Give tests a clock that their sleeps move forward, instead of waiting."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from spyweb.clock import Clock, Handle


class VirtualTimer(Struct, eq=False):
    due: float  # monotonic seconds
    callback: Callable[[], object]
    handle: Handle | None = None
    is_over: bool = False

    def cancel(self) -> None:
        self.is_over = True
        if self.handle:
            self.handle.cancel()

    def fire(self) -> None:
        if not self.is_over:
            self.cancel()
            self.callback()


class VirtualClock:
    """Runs ahead of another clock by all that has been slept; timers that are passed on the way fire."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_s = 0.0
        self._timers: list[VirtualTimer] = []

    def now_ms(self) -> int:
        return self._clock.now_ms() + int(self._ahead_s * 1000)

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        self._ahead_s += max(0.0, seconds)
        for timer in self._passed():
            timer.fire()
        await self._clock.sleep(0)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        timer = VirtualTimer(self.monotonic() + seconds, callback)
        timer.handle = self._clock.call_later(seconds, timer.fire)
        self._timers = [each for each in self._timers if not each.is_over]
        self._timers.append(timer)
        return timer

    def _passed(self) -> list[VirtualTimer]:
        due = (timer for timer in self._timers if not timer.is_over and timer.due <= self.monotonic())
        return sorted(due, key=lambda timer: timer.due)
