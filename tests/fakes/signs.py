"""A daemon that looks for signs, on a fake clock: what is wrong with it is what a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from spyweb.alerts.measures import JobMeasures
from spyweb.alerts.signs import Conditions, SignWatch
from spyweb.alerts.watcher import AlertWatcher
from spyweb.incidents.policy import NOBODY, AlertPolicy
from spyweb.model import Ending, JobId, Never, Outcome
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import RunRequest, by_hand
from spyweb.settings.alerts import AlertSettings
from spyweb.store.model.incidents import Incident
from tests.fakes.harness import Harness, harness, make_job

BACKUP = JobId("backup")
SUCCESS = Ending(outcome=Outcome.SUCCESS)


def make_watcher(
    h: Harness, settings: Callable[[], AlertSettings] = AlertSettings, *, pause: Any = None, **more: Any
) -> AlertWatcher:
    """Make what judges the ends of a harness's runs; jobs that fail too often are paused by `pause`, or really."""
    measures = JobMeasures(h.live, pause or h.scheduler.pause_together, h.runner.start_by_hand, h.store.runs)
    watcher = AlertWatcher(
        incidents=h.store.incidents, live=h.live, settings=settings, measures=measures, clock=h.clock, **more
    )
    h.runner.judge = watcher.judge
    return watcher


@dataclass
class WatchedJob:
    """A job, and what judges the ends of its runs."""

    harness: Harness
    watcher: AlertWatcher

    @property
    def job(self) -> LiveJob:
        found = self.harness.live.find(BACKUP)
        assert found
        return found

    async def run(self, *endings: Ending, request: RunRequest | None = None, then: float = 0) -> None:
        """Let the job run once, and its attempts end so; then let so many seconds pass."""
        self.harness.pool.endings[BACKUP] = list(endings or (SUCCESS,))
        self.harness.runner.start(self.job, [request or by_hand()])
        await self.turn(0.01 + then)

    async def turn(self, seconds: float) -> None:
        await self.harness.clock.turn(seconds)

    async def incidents(self, *, is_open: bool = True) -> list[Incident]:
        return await self.harness.store.incidents.list(is_open=is_open)


@dataclass
class Watched(WatchedJob):
    watch: SignWatch
    conditions: Conditions = field(default_factory=Conditions)

    async def signs(self) -> dict[str, str]:
        """Return what is noted, each with its text."""
        noted = await self.harness.store.incidents.signs()
        return {f"{subject} {sign}": seen.text for subject, signs in noted.items() for sign, seen in signs.items()}


@asynccontextmanager
async def watched(
    policy: AlertPolicy = NOBODY, before: Watched | None = None, *, jobs: int = 1, **spec: object
) -> AsyncIterator[Watched]:
    """Watch jobs; `before` is an earlier daemon with the same store."""
    earlier = before.harness if before else None
    async with harness(earlier.store if earlier else None, earlier.clock if earlier else None) as h:
        w: Watched
        watcher = make_watcher(h)
        signs = SignWatch(
            watcher=watcher,
            live=h.live,
            incidents=h.store.incidents,
            runs=h.store.runs,
            conditions=lambda: w.conditions,
            clock=h.clock,
        )
        w = Watched(h, watcher, signs)
        await watcher.load()
        await signs.load()
        fields: dict[str, object] = {"schedule": Never(), **spec}
        names = ["backup", *(f"job{number}" for number in range(1, jobs))]
        await h.settle(*(make_job(name, alerts=policy, **fields) for name in names))
        tasks = [h.tasks.create_task(each) for each in (watcher.keep_up(), signs.keep_up())]
        yield w
        for task in tasks:
            task.cancel()
