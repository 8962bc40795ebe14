"""A daemon on real parts whose weeks pass in seconds: its runs are real ones, and between them nothing is waited for.

The wall clock stands still while something runs, and is set to the next due time once nothing does.  What runs takes
real time: its timeouts, pauses and latencies are those of the machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from unittest.mock import patch

from spyweb.clock import Clock, RealClock
from spyweb.daemon import build
from spyweb.daemon.serve import Options, load_jobs, open_listeners, read_settings
from spyweb.model import JobId, Run
from spyweb.scheduler.timers import Timers
from spyweb.subjects.health.service import ReadinessService
from tests.fakes.clock import FakeClock
from tests.fakes.timers import FakeZone

PATIENCE_S = 30.0  # for the runs of one moment; only a broken part needs so long


class WeeksClock(RealClock):
    """Shows the time that it was set to; waits as long as asked for."""

    def __init__(self, now_ms: int) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        return self.at_ms


def make_timers(clock: Clock) -> Timers:
    return Timers(clock, tick_ms=1, zone=FakeZone(cast(FakeClock, clock)))


@dataclass(slots=True)
class Weeks:
    daemon: build.Daemon
    clock: WeeksClock
    url: str
    dashboard: str  # which has another port where there is content beside it

    async def pass_until(self, end_ms: int, before: Callable[[int], None] = lambda _: None) -> None:
        """Let time pass; `before` is called with each moment at which something is due, before that runs."""
        while (due_ms := self.daemon.timers.next_wake_ms) is not None and due_ms <= end_ms:
            self.clock.at_ms = max(due_ms, self.clock.at_ms)
            before(self.clock.at_ms)
            self.daemon.timers.clock_was_set()
            await self.rest()
        self.clock.at_ms = end_ms

    async def rest(self) -> None:
        """Wait until nothing is due, and nothing runs."""
        ends = time.monotonic() + PATIENCE_S
        while self._is_busy():
            assert time.monotonic() < ends, [run.job for run in self.daemon.runtime.live.running()]
            await asyncio.sleep(0.001)

    def _is_busy(self) -> bool:
        due_ms, live = self.daemon.timers.next_wake_ms, self.daemon.runtime.live
        is_due = due_ms is not None and due_ms <= self.clock.at_ms
        return (
            is_due or bool(self.daemon.scheduler.claiming()) or any(job.under_way or job.waiting_count for job in live)
        )

    async def runs(self, job: str) -> list[Run]:
        """Return the runs of a job, oldest first."""
        return (await self.daemon.runtime.store.runs.list(JobId(job), limit=1000))[::-1]


@asynccontextmanager
async def open_weeks(root: Path, begins_ms: int) -> AsyncIterator[Weeks]:
    """Open the daemon of a project, with its server, without the tasks that wait for time to pass."""
    clock = WeeksClock(begins_ms)
    (root / "data").mkdir(exist_ok=True)
    file = read_settings(Options(root=root, flags={"port": 0, "workers": 1}))
    async with AsyncExitStack() as stack:
        with patch.object(build, "Timers", make_timers):
            daemon = await build.build_daemon(stack, file, clock)
        await open_listeners(stack, daemon)
        await load_jobs(daemon)
        daemon.services[ReadinessService].stage = ""
        daemon.timers.start()
        listeners = daemon.server.listeners
        assert listeners.content
        weeks = Weeks(daemon, clock, listeners.content.url, (listeners.dashboard or listeners.content).url)
        await weeks.rest()
        yield weeks
        daemon.scheduler.stop()
        await daemon.runtime.runner.drain(0)
