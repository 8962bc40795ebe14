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
class Order:
    at_ms: int
    call: Callable[[], object]
    every_s: float | None = None
    handle: Handle | None = None
    under_way: set[Task[None]] = field(default_factory=set)


class FakeCalls(ScheduledCalls):
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._orders: dict[str, Order] = {}
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        for name in self._orders:
            self._arm(name)

    async def stop(self) -> None:
        self._is_running = False
        under_way = [task for order in self._orders.values() for task in order.under_way]
        for order in self._orders.values():
            if order.handle:
                order.handle.cancel()
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)

    def call_at(self, name: str, at_ms: int, call: Callable[[], object]) -> None:
        self._order(name, Order(at_ms, call))

    def call_every(self, name: str, seconds: float, call: Callable[[], Awaitable[None]]) -> None:
        self._order(name, Order(self._clock.now_ms() + round(seconds * 1000), call, seconds))

    def next_ms(self, name: str) -> int | None:
        return self._orders[name].at_ms if self._is_running and name in self._orders else None

    def clock_was_set(self) -> None:
        for name, order in self._orders.items():
            if order.every_s:
                order.at_ms = self._clock.now_ms()
            self._arm(name)

    def _order(self, name: str, order: Order) -> None:
        earlier = self._orders.get(name)
        if earlier and earlier.handle:
            earlier.handle.cancel()
        self._orders[name] = order
        self._arm(name)

    def _arm(self, name: str) -> None:
        order = self._orders[name]
        if order.handle:
            order.handle.cancel()
        if self._is_running:
            order.handle = self._clock.call_later((order.at_ms - self._clock.now_ms()) / 1000, partial(self._due, name))

    def _due(self, name: str) -> None:
        order = self._orders[name]
        if order.at_ms > self._clock.now_ms():  # the clock was set back meanwhile
            self._arm(name)
            return
        if order.every_s is None:
            del self._orders[name]
            order.call()
            return
        order.at_ms = self._clock.now_ms() + round(order.every_s * 1000)
        if not order.under_way:
            story = cast("Coroutine[object, object, None]", order.call())
            task = asyncio.get_running_loop().create_task(story)
            order.under_way.add(task)
            task.add_done_callback(order.under_way.discard)
        self._arm(name)


class FakeTimers(Timers):
    """Timers that fire at the very moment they are due."""

    def __init__(self, clock: FakeClock) -> None:
        self.calls = FakeCalls(clock)
        self.calls.start()
        super().__init__(clock, self.calls, tick_ms=0)
