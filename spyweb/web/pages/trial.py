"""Try a job: a run that changes nothing, with what it logged and found."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import msgspec
from aiohttp import web
from msgspec import Struct, field

from spyweb.model import Outcome
from spyweb.views.jobs import to_json
from spyweb.views.runs import LogLine, RunEnded, TaskView
from spyweb.web.access.principal import Right
from spyweb.web.pages.page import Action, Asked, Shown
from spyweb.web.pages.site import answer_with

MOST_LINES = 500
PATIENCE_S = 60.0  # after which the page no longer waits; the run goes on


class Trial(Struct):
    """A run as it was watched."""

    lines: list[LogLine] = field(default_factory=list)
    tasks: list[TaskView] = field(default_factory=list)
    left_out: int = 0
    end: RunEnded | None = None  # None: it goes on

    @property
    def words(self) -> str:
        if self.end is None:
            return "It still runs"
        return "Succeeded" if self.end.outcome is Outcome.SUCCESS else self.end.outcome.value.capitalize()

    @property
    def result(self) -> str:
        """Return what it returned, or of a monitor what it would have found, as JSON over several lines."""
        result = self.end.result if self.end else None
        return "" if result is None else msgspec.json.format(to_json(result), indent=2).decode()


@Action("jobs/{job}/try", right=Right.RUN)
async def try_job(asked: Asked) -> web.Response:
    """Run a job so that nothing is kept: of a monitor one cycle, of a script a dry run."""
    job = asked.job()
    name = asked.name_of(job)
    detail = await asked.service.details.detail(job)
    is_monitor = bool(detail.pages)
    trial = Trial()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _watch(asked, trial, is_monitor=is_monitor)
    except TimeoutError:
        pass  # shown as far as it has come
    values = {"job": job, "name": name, "trial": trial, "is_monitor": is_monitor}
    return await answer_with(asked, "trial.html", "jobs", Shown(title=f"{name}: tried", values=values))


async def _watch(asked: Asked, trial: Trial, *, is_monitor: bool) -> None:
    job = asked.job()
    async with aclosing(asked.service.run_once(job, debug=is_monitor, dry_run=not is_monitor)) as events:
        async for event in events:
            match event:
                case RunEnded():
                    trial.end = event
                case LogLine() if len(trial.lines) < MOST_LINES:
                    trial.lines.append(event)
                case LogLine():
                    trial.left_out += 1
                case TaskView() if event.status != "running":
                    trial.tasks.append(event)
