"""Timers on the fake clock: APScheduler itself, with a loop and a time zone that go by it."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import cast

from apscheduler.schedulers import base

from spyweb.clock import Handle
from spyweb.scheduler.timers import Timers
from tests.fakes.clock import FakeClock


class FakeZone(tzinfo):
    """UTC, where it is always what the clock shows."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=self) + timedelta(milliseconds=self._clock.now_ms())

    def utcoffset(self, _moment: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _moment: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _moment: datetime | None) -> str:
        return "UTC"


class ZonesDatetime(datetime):
    """A datetime that asks a fake zone for the time; APScheduler takes the time in no other way."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return tz.now() if isinstance(tz, FakeZone) else datetime.now(tz)


base.datetime = ZonesDatetime


class FakeLoop:
    """The running loop, whose timers go by the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio.get_running_loop(), name)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Handle:
        """Call after as many whole milliseconds; APScheduler's sums of seconds are less exact than the clock."""
        return self._clock.call_later(round(delay, 3), callback)


class FakeTimers(Timers):
    """Timers that fire at the very moment they are due."""

    def __init__(self, clock: FakeClock, tick_ms: int = 1) -> None:
        super().__init__(clock, tick_ms=tick_ms, zone=FakeZone(clock), loop=cast("AbstractEventLoop", FakeLoop(clock)))
