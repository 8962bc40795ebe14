"""Make scheduled calls on the fake clock, proven by the same contract test as those of APScheduler.

Like APScheduler they go by the wall clock: one that was set back delays them until `clock_was_set`.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from spyweb.clock import Handle
from spyweb.scheduler.calls import ScheduledCalls
from spyweb.scheduler.timers import Timers
from tests.fakes.clock import FakeClock


@dataclass(slots=True)
class FakeScheduledCall:
    at_ms: int
    call: Callable[[], object]
    every_s: float | None = None
    handle: Handle | None = None
    under_way: set[Task[None]] = field(default_factory=set)


class FakeCalls(ScheduledCalls):
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._scheduled: dict[str, FakeScheduledCall] = {}
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        for name in self._scheduled:
            self._arm(name)

    async def stop(self) -> None:
        self._is_running = False
        under_way = [task for scheduled in self._scheduled.values() for task in scheduled.under_way]
        for scheduled in self._scheduled.values():
            if scheduled.handle:
                scheduled.handle.cancel()
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)

    def call_at(self, name: str, at_ms: int, call: Callable[[], object]) -> None:
        self._schedule(name, FakeScheduledCall(at_ms, call))

    def call_every(self, name: str, seconds: float, call: Callable[[], Awaitable[None]]) -> None:
        self._schedule(name, FakeScheduledCall(self._clock.now_ms() + round(seconds * 1000), call, seconds))

    def next_ms(self, name: str) -> int | None:
        return self._scheduled[name].at_ms if self._is_running and name in self._scheduled else None

    def clock_was_set(self) -> None:
        for name, scheduled in self._scheduled.items():
            if scheduled.every_s:
                scheduled.at_ms = self._clock.now_ms()
            self._arm(name)

    def _schedule(self, name: str, scheduled: FakeScheduledCall) -> None:
        earlier = self._scheduled.get(name)
        if earlier and earlier.handle:
            earlier.handle.cancel()
        self._scheduled[name] = scheduled
        self._arm(name)

    def _arm(self, name: str) -> None:
        scheduled = self._scheduled[name]
        if scheduled.handle:
            scheduled.handle.cancel()
        if self._is_running:
            scheduled.handle = self._clock.call_later(
                (scheduled.at_ms - self._clock.now_ms()) / 1000, partial(self._due, name)
            )

    def _due(self, name: str) -> None:
        scheduled = self._scheduled[name]
        if scheduled.at_ms > self._clock.now_ms():  # the clock was set back meanwhile
            self._arm(name)
            return
        if scheduled.every_s is None:
            del self._scheduled[name]
            scheduled.call()
            return
        scheduled.at_ms = self._clock.now_ms() + round(scheduled.every_s * 1000)
        if not scheduled.under_way:
            story = cast("Coroutine[object, object, None]", scheduled.call())
            task = asyncio.get_running_loop().create_task(story)
            scheduled.under_way.add(task)
            task.add_done_callback(scheduled.under_way.discard)
        self._arm(name)


class FakeTimers(Timers):
    """Timers that fire at the very moment they are due."""

    def __init__(self, clock: FakeClock) -> None:
        self.calls = FakeCalls(clock)
        self.calls.start()
        super().__init__(clock, self.calls, tick_ms=0)
