"""The overview, the page of a job with its source, the actions of its buttons, and dry runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Annotated, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta, Struct, structs

from spyweb.events.changes import LOG_LINES, ChangeHub
from spyweb.events.hub import EventHub
from spyweb.limits import SCRIPT_VALUES, too_large
from spyweb.model import JobId, Outcome
from spyweb.settings.script_values import to_text, values_table
from spyweb.specs.origins import OriginKind
from spyweb.store.model.entries import job_namespace
from spyweb.store.model.incidents import job_of
from spyweb.store.model.runs import RunFilter
from spyweb.subjects.health.service import HealthService
from spyweb.subjects.incidents.service import IncidentService
from spyweb.subjects.incidents.views import incident_seen_by, told_words
from spyweb.subjects.incidents.words import SILENCES, held_words, open_line, show_incident, sign_words
from spyweb.subjects.jobs import words
from spyweb.subjects.jobs.overview import ATTENTION, SHOWN_RUNS, Overview, OverviewRow, Standing, overview_seen_by
from spyweb.subjects.jobs.service import JobDetails, JobService, OverviewService
from spyweb.subjects.jobs.views import detail_seen_by, schedule_words
from spyweb.subjects.records.service import RecordSearch
from spyweb.subjects.runs.service import PastRunsService, RunService
from spyweb.subjects.runs.starting import read_payload
from spyweb.subjects.runs.views import TimeSpan
from spyweb.subjects.runs.words import LONGEST_VALUE, show_run
from spyweb.subjects.state.service import StateService
from spyweb.subjects.uptime.service import UptimeService
from spyweb.subjects.when.service import MaintenanceService
from spyweb.views.jobs import as_text, to_json
from spyweb.views.runs import LogLine, RunEnded, TaskView, check_result
from spyweb.web.access.principal import Principal, Right
from spyweb.web.api.services import Outlook
from spyweb.web.pages.charts import chart, draw_days
from spyweb.web.pages.frame import PageFrame
from spyweb.web.pages.page import Action, Asked, DashboardPage, PagePart, Shown, coloured, lead_to
from spyweb.web.pages.site import answer_with
from spyweb.words import cut

T = TypeVar("T")

TOGETHER = 25  # rows made at a time, before others have their turn
ATTENTION_SHOWN = 8  # jobs above the list; all are in the list as well
ROW = "j-"  # begins the id of a row
OVERVIEW_PARTS = {
    "title": PagePart("title.html", ("job:*", "health", "incident")),
    "verdict": PagePart("verdict.html", ("job:*", "health", "incident")),
    "attention": PagePart("attention.html", ("job:*", "health", "incident")),
    ROW + "*": PagePart("job_row.html", ("job:*",)),
}


def outlook_of(
    overview: OverviewService, health: HealthService, incidents: IncidentService
) -> Callable[[Principal], Awaitable[Outlook]]:
    """Return a function that sums up the jobs a caller may see.  It only counts, since every page asks for it."""

    async def look(principal: Principal) -> Outlook:
        rows = await overview.all_rows()
        standings = [row.standing for row in rows if principal.may_see(row.job.id)]
        problems, warnings = health.troubles() if len(standings) == len(rows) else ((), ())
        found = await incidents.all_open()
        if principal.jobs:
            found = [each for each in found if principal.may_see(job_of(each.subject) or "")]
        state = words.state_of(standings, problems, warnings)
        counts = {
            "jobs": sum(standing in ATTENTION for standing in standings),
            "health": len(problems) + len(warnings),
            "incidents": len(found),
        }
        return Outlook("warn" if state == "ok" and found else state, counts, found)

    return look


async def rows_of(asked: Asked, rows: Iterable[OverviewRow], above: Collection[str]) -> dict[str, str]:
    """Render rows, with pauses for other tasks; an unchanged row, which is the same for everybody, is reused."""
    services, frame = asked.services, PageFrame(moments=asked.moments)
    rendered = services[OverviewService].rendered
    html: dict[str, str] = {}
    for count, row in enumerate(rows):
        job = row.job.id
        kept = rendered.get(job)
        if job in above or kept is None or kept[0] is not row:  # a row that has changed is another object
            spec = services.catalogue.spec(job)
            how = schedule_words(spec, services.timezone, asked.name_of) if spec else ""
            shown = words.draw_row(row, how, is_above=job in above)
            kept = row, asked.renderer.part("job_row.html", frame, {"shown": shown})
            if job not in above:
                rendered[job] = kept
        html[ROW + job] = kept[1]
        if count % TOGETHER == TOGETHER - 1:
            await services.clock.sleep(0)
    return html


def troubled(overview: Overview) -> list[OverviewRow]:
    """Return the rows of the list above all others."""
    return [row for row in overview.rows if row.standing in ATTENTION][:ATTENTION_SHOWN]


async def summary_of(asked: Asked, overview: Overview, chosen: words.JobFilter) -> dict[str, object]:
    """Return the values of the parts above the list; incidents of jobs in the upper list are shown there."""
    trouble = troubled(overview)
    incidents, above = (await asked.outlook()).incidents, {row.job.id for row in trouble}
    of_job = {job_of(each.subject): each for each in incidents}
    others = [each for each in incidents if job_of(each.subject) not in above]
    fits = [chosen.takes(row) for row in trouble]
    return {
        "verdict": overview.verdict,
        "open": open_line(others, lambda subject: asked.name_of(job_of(subject) or "")),
        "sign_words": sign_words,
        "trouble": [(words.draw_row(row), of_job.get(row.job.id), fit) for row, fit in zip(trouble, fits, strict=True)],
        "more_trouble": sum(row.standing in ATTENTION for row in overview.rows) - len(trouble),
        "is_any_trouble": any(fits),
        "name_of": asked.name_of,
    }


@DashboardPage("", "overview.html", place="jobs", of_job=True, parts=OVERVIEW_PARTS, anew=("jobs",))
async def show_overview(asked: Asked) -> Shown:
    """Show the state of all jobs."""
    overview = overview_seen_by(await asked.services[OverviewService].look(), asked.principal.may_see)
    verdict = overview.verdict
    title = f"{verdict.failing:,} failing" if verdict.failing else verdict.words  # a tab has room for a few words
    if not overview.rows:
        root = str(asked.services[JobService].root)
        return Shown(title="No jobs yet", values={"root": root}, template="empty.html")
    chosen, above = asked.query(words.JobFilter), {row.job.id for row in troubled(overview)}
    if asked.parts:
        html = await rows_of(asked, [row for row in overview.rows if ROW + row.job.id in asked.parts], above)
        return Shown(title=title, values=await summary_of(asked, overview, chosen), html=html)
    rows = sorted(overview.rows, key=words.ORDERS.get(chosen.sort, words.ORDERS["worst"])[1])
    html = await rows_of(asked, rows, above)
    fits = [chosen.takes(row) for row in rows]
    values = {
        **await summary_of(asked, overview, chosen),
        "rows": [(html[ROW + row.job.id], fit) for row, fit in zip(rows, fits, strict=True)],
        "is_any_shown": any(fits),
        "chosen": chosen,
        "tags": overview.tags,
        "orders": [(order, said) for order, (said, _) in words.ORDERS.items()],
        "states": asked.chips(
            chosen,
            "state",
            [("", "All"), *((state, words.STANDINGS[Standing(state)].word.capitalize()) for state in overview.states)],
            {**overview.states, "": len(overview.rows)},
        ),
    }
    return Shown(title=title, values=values)


@DashboardPage("jobs/{job}/strip", "strip_runs.html", place="jobs")
async def show_strip(asked: Asked) -> Shown:
    """Show the run of each bar of a strip: a fragment that is fetched when the pointer is on the strip."""
    job = asked.job()
    found = await asked.services[PastRunsService].search(RunFilter(job=job, own=True), limit=SHOWN_RUNS)
    spec = asked.services.catalogue.spec(job)
    return Shown(title="", values={"runs": [show_run(run, spec) for run in reversed(found.runs)]})


RUNS_SHOWN, STORED_SHOWN, RECORDS_SHOWN, DAYS_SHOWN = 12, 8, 5, 90
PARTS = {
    "title": PagePart("title.html", ("job:{job}",)),
    "job-head": PagePart("job_head.html", ("job:{job}", "incident")),
    "job-why": PagePart("job_why.html", ("job:{job}",)),
    "job-uptime": PagePart("job_uptime.html", ("job:{job}",)),
    "job-runs": PagePart("job_runs.html", ("job:{job}",)),
    "job-plan": PagePart("job_plan.html", ("job:{job}", "tasks:{job}")),
    "job-next": PagePart("job_next.html", ("job:{job}",)),
    "job-alerts": PagePart("job_alerts.html", ("job:{job}", "incident", "outbox")),
    "log": PagePart("more_log.html", ("log:{job}",)),
}


class JobPageQuery(Struct, frozen=True):
    """The time that the chart shows."""

    span: str = TimeSpan.DAY.value


async def values_of(asked: Asked, job: JobId) -> dict[str, object]:
    """Gather the values of the page's parts."""
    services, may_see = asked.services, asked.principal.may_see
    detail = detail_seen_by(await services[JobDetails].detail(job), may_see)
    row = detail.row
    spec = services.catalogue.spec(job)
    runs = await services[PastRunsService].newest(job, limit=RUNS_SHOWN, before=None)
    (uptime,) = await services[UptimeService].look([job], days=DAYS_SHOWN)
    mark, _, heading = words.words_of_row(row)
    found = await services[IncidentService].list(is_open=True, job=job, before=None, limit=1)
    return {
        "title": f"{row.job.name}: {heading}",  # the name tells tabs apart
        "detail": detail,
        "row": row,
        "job": row.job,
        "incident": show_incident(incident_seen_by(found[0], may_see), row.job.name) if found else None,
        "silence": await services[IncidentService].silence_of(job),
        "silences": SILENCES,
        "maintenance_ms": services[MaintenanceService].until(job),
        "uptime": uptime,
        "days": draw_days([day.uptime for day in uptime.days]),
        "told_words": told_words,
        "held_words": held_words,
        "mark": mark,
        "heading": heading,
        "checked": check_result(row.job.last) if row.job.check else None,
        "schedule": schedule_words(spec, services.timezone, asked.name_of) if spec else "",
        "name_of": asked.name_of,
        "written": [each for each in detail.settings if each.origin is not OriginKind.BUILT_IN],
        "built_in": [each for each in detail.settings if each.origin is OriginKind.BUILT_IN],
        "runs": [show_run(run, spec) for run in runs],
        "is_of_all": False,
        "plan": await services[PastRunsService].newest_plan(job),
        "error_lines": await coloured(detail.error.source) if detail.error else [],
        "problem_lines": await coloured(detail.source),
    }


@DashboardPage("jobs/{job}", "job.html", place="jobs", parts=PARTS, at_owner="rather")
async def show_job(asked: Asked) -> Shown:
    """Show everything about a job."""
    return await job_page(asked, {})


async def job_page(asked: Asked, problems: Mapping[str, str]) -> Shown:
    """Return the page of a job; `problems` are the errors of fields of the form that starts a run."""
    services, job, query = asked.services, asked.job(), asked.query(JobPageQuery)
    span = TimeSpan(query.span) if query.span in set(TimeSpan) else TimeSpan.DAY
    if asked.parts == ["log"]:
        return Shown(title="", values=more_of_log(asked, job))
    values = await values_of(asked, job)
    if asked.parts:
        return Shown(title=str(values["title"]), values={**values, **more_of_log(asked, job)})
    spec = services.catalogue.spec(job)
    of_latency, limit_ms = bool(spec and spec.check), spec.timeout_ms if spec and not spec.check else None
    statistics = await services[PastRunsService].statistics(job, span, of_latency=of_latency)
    shown, zone = "Latencies" if of_latency else "Durations", asked.moments.zone
    entries = services[StateService].entries(job_namespace(job), b"", STORED_SHOWN)
    more = {
        "chart": chart(statistics.points, statistics.since_ms, statistics.until_ms, zone, limit_ms, shown),
        "statistics": statistics,
        "span_words": words.SPAN_WORDS[span],
        "spans": asked.chips(query, "span", [(each.value, words.SPAN_WORDS[each]) for each in TimeSpan]),
        "after_words": words.after_words,
        "nobody": "none that you may see" if asked.principal.jobs else "no other job",
        "lines": await services[ChangeHub].log_until(job, asked.mark),
        "stored": [
            (cut(as_text(entry.key), LONGEST_VALUE), cut(as_text(entry.value), LONGEST_VALUE))
            async for entry in entries
        ],
        "records": await services[RecordSearch].newest(job, limit=RECORDS_SHOWN, before_ns=None),
        "own_values": cut(spec.values, LONGEST_VALUE) if spec and not spec.check else "",
        "typed": asked.form,
        "problems": problems,
    }
    status = 422 if problems else 200
    return Shown(title=str(values["title"]), values={**values, **more}, status=status, is_live=not problems)


def more_of_log(asked: Asked, job: JobId) -> dict[str, object]:
    """Return the log lines that the page does not show yet: the last ones, and how many are left out."""
    lines = asked.services[ChangeHub].log_between(job, asked.since, asked.mark)
    return {"lines": lines[-LOG_LINES:], "left_out": max(0, len(lines) - LOG_LINES)}


@Action("jobs/{job}/run", right=Right.RUN, at_owner="must")
async def run_now(asked: Asked) -> web.Response:
    """Start a run of a job, or queue it."""
    started = await asked.services[RunService].start(asked.job())
    return lead_to(asked.back(started.run))


def read_field(text: str) -> object:
    """Return the JSON of a field; None for an empty one.  Raises ValueError."""
    content = text.strip().encode()
    if len(content) > SCRIPT_VALUES:
        raise ValueError(too_large("it", len(content), SCRIPT_VALUES))
    try:
        return read_payload(content)
    except web.HTTPBadRequest as error:
        raise ValueError((error.text or "").replace("the body", "it", 1)) from error


def read_values(text: str) -> Mapping[str, object]:
    """Return the values of a field.  Raises ValueError."""
    found = read_field(text)
    if not isinstance(found, dict | None):
        raise ValueError('expected a JSON object, such as {"host": "web1"}')
    values = values_table(found or {})
    to_text(values)
    return values


@Action("jobs/{job}/start", right=Right.RUN, at_owner="must")
async def start_with(asked: Asked) -> web.Response:
    """Start a run of a job with the values and the payload of a form."""
    problems: dict[str, str] = {}

    def field(name: str, read: Callable[[str], T]) -> T | None:
        try:
            return read(asked.form.get(name, ""))
        except ValueError as error:
            problems[name] = str(error)
            return None

    job, values, payload = asked.job(), field("values", read_values), field("payload", read_field)
    if problems:
        asked = structs.replace(asked, mark=asked.services[EventHub].mark())
        return await answer_with(asked, "job.html", "jobs", await job_page(asked, problems))
    started = await asked.services[RunService].start(job, payload, values=values)
    return lead_to(asked.back(started.run))


@Action("jobs/{job}/pause", right=Right.RUN, at_owner="must")
async def pause(asked: Asked) -> web.Response:
    """Pause the schedule of a job."""
    await asked.services[JobService].pause(asked.job())
    return lead_to(asked.back())


@Action("jobs/{job}/resume", right=Right.RUN, at_owner="must")
async def resume(asked: Asked) -> web.Response:
    """Resume the schedule of a paused job."""
    await asked.services[JobService].resume(asked.job())
    return lead_to(asked.back())


class SourceQuery(Struct, frozen=True):
    """A file of a job, and the line to highlight."""

    file: str | None = None
    line: Annotated[int, Meta(ge=1)] | None = None


@DashboardPage("jobs/{job}/source", "source.html", place="jobs")
async def show_source(asked: Asked) -> Shown:
    """Show a whole file of the version of a job that runs."""
    job, query = asked.job(), asked.query(SourceQuery)
    source = await asked.services[JobDetails].source(job, query.file)
    lines = await coloured(source, query.line)
    return Shown(title=source.file, values={"job": job, "name": asked.name_of(job), "source": source, "lines": lines})


MOST_LINES = 500
PATIENCE_S = 60.0  # after which the page no longer waits; the run continues


class Trial(Struct):
    """A run as it was watched."""

    lines: list[LogLine] = msgspec.field(default_factory=list)
    tasks: list[TaskView] = msgspec.field(default_factory=list)
    left_out: int = 0
    end: RunEnded | None = None  # None: it still runs

    @property
    def words(self) -> str:
        if self.end is None:
            return "Still running"
        return "Succeeded" if self.end.outcome is Outcome.SUCCESS else self.end.outcome.value.capitalize()

    @property
    def result(self) -> str:
        """Return the result of the run, or the items that a monitor would have found, as JSON over several lines."""
        result = self.end.result if self.end else None
        return "" if result is None else msgspec.json.format(to_json(result), indent=2).decode()


@Action("jobs/{job}/try", right=Right.RUN, at_owner="must")
async def try_job(asked: Asked) -> web.Response:
    """Run a job without keeping anything: one cycle of a monitor, a dry run of a script."""
    job, trial = asked.job(), Trial()
    name, is_monitor = asked.name_of(job), bool((await asked.services[JobDetails].detail(job)).pages)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _watch(asked, trial, is_monitor=is_monitor)
    except TimeoutError:
        pass  # the page shows the run up to here
    values = {"job": job, "name": name, "trial": trial, "is_monitor": is_monitor}
    return await answer_with(asked, "trial.html", "jobs", Shown(title=f"{name}: dry run", values=values))


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
