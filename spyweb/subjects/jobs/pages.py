"""The page of a job with its source, what its buttons do, and a run of it that changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct, field

from spyweb.errors import Refused
from spyweb.events.changes import LOG_LINES, ChangeHub
from spyweb.model import JobId, Outcome
from spyweb.subjects.incidents.service import IncidentService
from spyweb.subjects.incidents.views import incident_seen_by
from spyweb.subjects.incidents.words import SILENCES, held_words, show_incident, told_words
from spyweb.subjects.jobs.service import JobDetails, JobService
from spyweb.subjects.jobs.views import detail_seen_by
from spyweb.subjects.jobs.words import (
    SPAN_WORDS,
    after_words,
    draw_statistics,
    heading_of,
    split_settings,
    tab_title,
    ticks,
)
from spyweb.subjects.maintenance.service import MaintenanceService
from spyweb.subjects.records.service import RecordSearch
from spyweb.subjects.runs.service import PastRunsService, RunService
from spyweb.subjects.runs.views import TimeSpan
from spyweb.subjects.runs.words import show_run
from spyweb.subjects.state.service import StateService
from spyweb.views.jobs import to_json
from spyweb.views.runs import LogLine, RunEnded, TaskView
from spyweb.views.strips import late_after
from spyweb.web.access.principal import Right
from spyweb.web.api.services import Services
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, PagePart, Shown, coloured, lead_to
from spyweb.web.pages.site import answer_with
from spyweb.words import cut

RUNS_SHOWN, STORED_SHOWN, RECORDS_SHOWN = 12, 8, 5
LONGEST_VALUE = 120  # characters
PARTS = {
    "title": PagePart("title.html", ("job:{job}",)),
    "job-head": PagePart("job_head.html", ("job:{job}", "incident")),
    "job-why": PagePart("job_why.html", ("job:{job}",)),
    "job-runs": PagePart("job_runs.html", ("job:{job}",)),
    "job-next": PagePart("job_next.html", ("job:{job}",)),
    "job-alerts": PagePart("job_alerts.html", ("job:{job}", "incident")),
    "log": PagePart("more_log.html", ("log:{job}",)),
}


class JobPageQuery(Struct, frozen=True):
    """The time that the chart shows."""

    span: str = TimeSpan.DAY.value

    def chosen(self) -> TimeSpan:
        return TimeSpan(self.span) if self.span in set(TimeSpan) else TimeSpan.DAY


async def stored_values(services: Services, namespace: str) -> list[tuple[str, str]]:
    """Return the first keys of a job's own, each with its value as JSON, cut off where it is long."""
    entries = services[StateService].entries(namespace, b"", STORED_SHOWN)
    return [(_as_json(entry.key), _as_json(entry.value)) async for entry in entries]


def _as_json(value: object) -> str:
    text = value if isinstance(value, str) else to_json(value).decode()
    return cut(text, LONGEST_VALUE)


async def values_of(services: Services, job: JobId, may_see: Callable[[str], bool]) -> dict[str, object]:
    """Gather what the parts of the page show."""
    detail = detail_seen_by(await services[JobDetails].detail(job), may_see)
    row = detail.row
    late_ms = late_after(services.catalogue.spec(job))
    runs = await services[PastRunsService].newest(job, limit=RUNS_SHOWN, before=None)
    mark, heading = heading_of(row)
    found = await services[IncidentService].list(is_open=True, job=job, before=None, limit=1)
    written, built_in = split_settings(detail)
    return {
        "title": tab_title(row),
        "detail": detail,
        "namespace": detail.namespace,
        "row": row,
        "job": row.job,
        "incident": show_incident(incident_seen_by(found[0], may_see), row.job.name) if found else None,
        "silence": await services[IncidentService].silence_of(job),
        "silences": SILENCES,
        "maintenance_ms": services[MaintenanceService].until(job),
        "told_words": told_words,
        "held_words": held_words,
        "mark": mark,
        "heading": heading,
        "written": written,
        "built_in": built_in,
        "runs": [show_run(run, late_ms) for run in runs],
        "is_of_all": False,
        "error_lines": await coloured(detail.error.source) if detail.error else [],
        "problem_lines": await coloured(detail.source),
    }


@DashboardPage("jobs/{job}", "job.html", place="jobs", parts=PARTS)
async def show_job(asked: Asked) -> Shown:
    """Show everything about a job."""
    services, job, query = asked.services, asked.job(), asked.query(JobPageQuery)
    span = query.chosen()
    if asked.parts == ["log"]:
        return Shown(title="", values=more_of_log(asked, job))
    values = await values_of(services, job, asked.principal.may_see)
    if asked.parts:
        return Shown(title=str(values["title"]), values={**values, **more_of_log(asked, job)})
    statistics = await services[PastRunsService].statistics(job, span)
    spec = services.catalogue.spec(job)
    limit_ms = spec.timeout_ms if spec else None
    more = {
        "chart": draw_statistics(statistics, limit_ms),
        "statistics": statistics,
        "span_words": SPAN_WORDS[span],
        "spans": asked.chips(query, "span", [(each.value, SPAN_WORDS[each]) for each in TimeSpan]),
        "is_short": span is TimeSpan.DAY,
        "ticks": ticks(statistics),
        "after_words": after_words,
        "nobody": "none that you may see" if asked.principal.jobs else "no other job",
        "lines": await services[ChangeHub].log_until(job, asked.mark),
        "stored": await stored_values(services, str(values["namespace"])),
        "records": await services[RecordSearch].newest(job, limit=RECORDS_SHOWN, before_ns=None),
    }
    return Shown(title=str(values["title"]), values={**values, **more})


def more_of_log(asked: Asked, job: JobId) -> dict[str, object]:
    """Return the lines that the page does not show yet; of very many the last, and how many are left out."""
    lines = asked.services[ChangeHub].log_between(job, asked.since, asked.mark)
    return {"lines": lines[-LOG_LINES:], "left_out": max(0, len(lines) - LOG_LINES)}


@Action("jobs/{job}/run", right=Right.RUN)
async def run_now(asked: Asked) -> web.Response:
    """Start a run of a job, or queue it."""
    await asked.services[RunService].start(asked.job())
    return lead_to(asked.back())


@Action("jobs/{job}/pause", right=Right.RUN)
async def pause(asked: Asked) -> web.Response:
    """Have the schedule of a job start no more runs."""
    await asked.services[JobService].pause(asked.job())
    return lead_to(asked.back())


@Action("jobs/{job}/resume", right=Right.RUN)
async def resume(asked: Asked) -> web.Response:
    """Have the schedule of a paused job start runs again."""
    await asked.services[JobService].resume(asked.job())
    return lead_to(asked.back())


class SourceQuery(Struct, frozen=True):
    """A file of a job, and the line that is meant."""

    file: str | None = None
    line: Annotated[int, Meta(ge=1)] | None = None


@DashboardPage("jobs/{job}/source", "source.html", place="jobs")
async def show_source(asked: Asked) -> Shown:
    """Show a whole file of a job, as it runs."""
    job, query = asked.job(), asked.query(SourceQuery)
    try:
        source = await asked.services[JobDetails].source(job, query.file)
    except Refused as error:
        raise PageMissing("There is no such file") from error
    lines = await coloured(source, query.line)
    return Shown(title=source.file, values={"job": job, "name": asked.name_of(job), "source": source, "lines": lines})


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
    detail = await asked.services[JobDetails].detail(job)
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
    async with aclosing(asked.services[RunService].run_once(job, debug=is_monitor, dry_run=not is_monitor)) as events:
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
