"""One run of a monitor job: all its workers over all its addresses.

Workers begin one after the other and take addresses from a queue; where there is a single address each fetches it.
One that fails leaves the others alone.  When all have ended, on_finished is called, however they ended.
"""

from __future__ import annotations

from asyncio import TaskGroup
from collections import deque
from functools import partial

from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.lua.hooks import is_defined
from spyweb.lua.wire import Why
from spyweb.model import Ending, JobId, Outcome
from spyweb.monitor.carry_out import LAST_WORDS_MS, Cycles, Errand
from spyweb.monitor.endings import conclude

STAGGER = 0.2  # seconds between the first requests of two workers


class Iteration:
    def __init__(self, cycles: Cycles, errand: Errand, clock: Clock) -> None:
        self._cycles = cycles
        self._errand = errand
        self._monitor = errand.version.monitor
        self._clock = clock
        self._why = Why.NOTHING
        self._queue = deque(self._monitor.urls)
        self._endings: list[Ending] = []

    @property
    def job(self) -> JobId:
        return self._errand.run.job

    async def run(self) -> Ending:
        timeout_s = self._errand.version.spec.timeout_ms / 1000
        began = self._clock.monotonic()
        timer = self._clock.call_later(timeout_s, partial(self.cancel, Why.TIMEOUT))
        try:
            await self._work()
            await self._finish(timeout_s - (self._clock.monotonic() - began))
        finally:
            timer.cancel()
        return conclude(self._endings, self._why)

    def cancel(self, why: Why) -> None:
        """Have every cycle end.  The first reason stands."""
        if self._why is Why.NOTHING:
            self._why = why
            self._queue.clear()
            self._cycles.cancel(why)

    async def _work(self) -> None:
        if self._errand.is_preview:
            await self._pass(1, self._monitor.urls[0])
        elif self._monitor.workers == 1:
            await self._worker(1)
        else:
            async with TaskGroup() as workers:
                await self._launch(workers)

    async def _launch(self, workers: TaskGroup) -> None:
        for number in range(1, self._monitor.workers + 1):
            if number > 1:
                await self._clock.sleep(STAGGER)
            if not self._queue:  # nothing is left, or it has been cancelled
                return
            workers.create_task(self._worker(number), name=f"worker {number} of {self._errand.run.job}")

    async def _worker(self, number: int) -> None:
        if not self._monitor.is_queue:
            await self._pass(number, self._monitor.urls[0])
            return
        while self._queue:
            await self._pass(number, self._queue.popleft())

    async def _pass(self, worker: int, url: str) -> None:
        ending = await self._cycles.carry_out(worker, url)
        if ending.outcome is not Outcome.SUCCESS and len(self._monitor.urls) > 1:
            ending = replace(ending, reason=f"{url}: {ending.reason}")
        self._endings.append(ending)

    async def _finish(self, left_s: float) -> None:
        if not self._errand.is_preview and is_defined(self._errand.version.turn.defined, "on_finished"):
            await self._cycles.call_on_finished(max(LAST_WORDS_MS, round(left_s * 1000)))
