"""The page of a job, and what its buttons do."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from msgspec import Struct

from spyweb.dashboard.incidents import SILENCES, held_words, show_incident, told_words
from spyweb.dashboard.job import (
    SPAN_WORDS,
    after_words,
    draw_statistics,
    heading_of,
    show_run,
    split_settings,
    tab_title,
    ticks,
)
from spyweb.model import JobId
from spyweb.service.changes import LOG_LINES
from spyweb.service.daemon import DaemonService
from spyweb.views.incidents import incident_seen_by
from spyweb.views.job_detail import detail_seen_by
from spyweb.views.jobs import to_json
from spyweb.views.statistics import TimeSpan
from spyweb.views.strips import late_after
from spyweb.web.access.principal import Right
from spyweb.web.pages.page import Action, Asked, DashboardPage, PagePart, Shown, lead_to
from spyweb.web.pages.source import coloured
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


async def stored_values(service: DaemonService, namespace: str) -> list[tuple[str, str]]:
    """Return the first keys of a job's own, each with its value as JSON, cut off where it is long."""
    entries = service.state.entries(namespace, b"", STORED_SHOWN)
    return [(_as_json(entry.key), _as_json(entry.value)) async for entry in entries]


def _as_json(value: object) -> str:
    text = value if isinstance(value, str) else to_json(value).decode()
    return cut(text, LONGEST_VALUE)


async def values_of(service: DaemonService, job: JobId, may_see: Callable[[str], bool]) -> dict[str, object]:
    """Gather what the parts of the page show."""
    detail = detail_seen_by(await service.details.detail(job), may_see)
    row = detail.row
    late_ms = late_after(service.spec(job))
    runs = await service.runs(job, limit=RUNS_SHOWN, before=None)
    mark, heading = heading_of(row)
    found = await service.incidents.list(is_open=True, job=job, before=None, limit=1)
    written, built_in = split_settings(detail)
    return {
        "title": tab_title(row),
        "detail": detail,
        "namespace": detail.namespace,
        "row": row,
        "job": row.job,
        "incident": show_incident(incident_seen_by(found[0], may_see), row.job.name) if found else None,
        "silence": await service.incidents.silence_of(job),
        "silences": SILENCES,
        "maintenance_ms": service.calendar.maintenance_until(job),
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
    service, job, query = asked.service, asked.job(), asked.query(JobPageQuery)
    span = query.chosen()
    if asked.parts == ["log"]:
        return Shown(title="", values=more_of_log(asked, job))
    values = await values_of(service, job, asked.principal.may_see)
    if asked.parts:
        return Shown(title=str(values["title"]), values={**values, **more_of_log(asked, job)})
    statistics = await service.past.statistics(job, span)
    spec = service.spec(job)
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
        "lines": await service.changes.log_until(job, asked.mark),
        "stored": await stored_values(service, str(values["namespace"])),
        "records": await service.records(job, limit=RECORDS_SHOWN, before_ns=None),
    }
    return Shown(title=str(values["title"]), values={**values, **more})


def more_of_log(asked: Asked, job: JobId) -> dict[str, object]:
    """Return the lines that the page does not show yet; of very many the last, and how many are left out."""
    lines = asked.service.changes.log_between(job, asked.since, asked.mark)
    return {"lines": lines[-LOG_LINES:], "left_out": max(0, len(lines) - LOG_LINES)}


@Action("jobs/{job}/run", right=Right.RUN)
async def run_now(asked: Asked) -> web.Response:
    """Start a run of a job, or queue it."""
    await asked.service.start(asked.job())
    return lead_to(asked.back())


@Action("jobs/{job}/pause", right=Right.RUN)
async def pause(asked: Asked) -> web.Response:
    """Have the schedule of a job start no more runs."""
    await asked.service.pause(asked.job())
    return lead_to(asked.back())


@Action("jobs/{job}/resume", right=Right.RUN)
async def resume(asked: Asked) -> web.Response:
    """Have the schedule of a paused job start runs again."""
    await asked.service.resume(asked.job())
    return lead_to(asked.back())
