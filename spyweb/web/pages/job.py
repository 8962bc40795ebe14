"""The page of a job, and what its buttons do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from spyweb.dashboard.frame import Chip, PageFrame
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
from spyweb.errors import Refused
from spyweb.logs.tail import last_lines
from spyweb.model import JobId
from spyweb.service.daemon import DaemonService
from spyweb.service.page_hub import LOG_LINES
from spyweb.views.events import EventType, LogHappened, lines_in_file
from spyweb.views.incidents import without_others
from spyweb.views.job_detail import detail_seen_by
from spyweb.views.jobs import to_json
from spyweb.views.statistics import TimeSpan
from spyweb.views.strips import late_after
from spyweb.web.access.principal import Principal
from spyweb.web.access.rights import Right
from spyweb.web.pages.outlook import look
from spyweb.web.pages.page import Asked, Shown, action, lead_to, live_view, moments_of, page
from spyweb.web.pages.source import coloured
from spyweb.words import cut

if TYPE_CHECKING:
    from spyweb.dashboard.render import Renderer

RUNS_SHOWN, STORED_SHOWN, RECORDS_SHOWN = 12, 8, 5
LONGEST_VALUE = 120  # characters
PARTS = {
    "title": "title.html",
    "icon": "icon.html",
    "count-jobs": "count.html",
    "count-incidents": "count.html",
    "job-head": "job_head.html",
    "job-why": "job_why.html",
    "job-runs": "job_runs.html",
    "job-next": "job_next.html",
    "job-alerts": "job_alerts.html",
}


class JobPageQuery(Struct, frozen=True):
    """The time that the chart shows."""

    span: str = TimeSpan.DAY.value

    def chosen(self) -> TimeSpan:
        return TimeSpan(self.span) if self.span in set(TimeSpan) else TimeSpan.DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPageView:
    """The parts of a job's page that change while somebody looks."""

    service: DaemonService
    principal: Principal
    base: str
    renderer: Renderer
    job: JobId

    @property
    def key(self) -> Hashable:
        return "job", self.base, self.principal.jobs, self.principal.rights, self.job

    @property
    def needs(self) -> frozenset[EventType]:
        return frozenset({EventType.RUN, EventType.JOB, EventType.INCIDENT})

    @property
    def log(self) -> JobLogView:
        return JobLogView(job=self.job, renderer=self.renderer, frame=self._frame())

    def _frame(self) -> PageFrame:
        return PageFrame(base=self.base, moments=moments_of(self.service), may=self.principal.may_do)

    def parts(self, subject: str) -> Sequence[str] | None:
        """Return the ids of the parts that depend on a subject."""
        if subject == f"job:{self.job}":
            return tuple(PARTS)
        if subject == "incident":
            return ("icon", "count-incidents", "job-head", "job-alerts")
        return ("icon", "count-jobs") if subject.startswith("job:") else ()

    async def render(self, parts: Sequence[str]) -> Mapping[str, str]:
        """Return each part as it is now."""
        values = await values_of(self.service, self.job, self.principal.may_see)
        outlook = await look(self.service, self.principal)
        frame = replace(self._frame(), state=outlook.state, counts=outlook.counts)
        return {
            part: self.renderer.part(PARTS[part], frame, {**values, "name": part.removeprefix("count-")})
            for part in parts
        }


class JobLogView(Struct, frozen=True, kw_only=True):
    """The log of a job, as its page shows it."""

    job: JobId
    renderer: Renderer
    frame: PageFrame

    def whole(self, lines: Sequence[LogHappened]) -> str:
        """Render the element with the last lines."""
        return self.renderer.part("job_log.html", self.frame, {"lines": lines})

    def more(self, lines: Sequence[LogHappened], left_out: int) -> str:
        """Render lines to be appended."""
        values = {"lines": lines, "left_out": left_out}
        return self.renderer.part("more_log.html", self.frame, values)


@live_view("job")
def job_view(asked: Asked, argument: str) -> JobPageView:
    """Make the view of a job's page: its argument is the job."""
    if not asked.principal.may_see(argument):
        raise web.HTTPForbidden(text=f"{asked.principal.name} may not see this job")
    return JobPageView(
        service=asked.service,
        principal=asked.principal,
        base=asked.base,
        renderer=asked.renderer,
        job=JobId(argument),
    )


async def last_log_lines(service: DaemonService, job: JobId) -> list[LogHappened]:
    """Return the end of a job's log; nothing of a job that is not there."""
    try:
        path = service.log_file(job)
    except Refused:
        return []
    return lines_in_file(job, await asyncio.to_thread(last_lines, path, LOG_LINES))


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
    late_ms = late_after(service.live.find(job))
    runs = await service.runs(job, limit=RUNS_SHOWN, before=None)
    mark, heading = heading_of(row)
    found = await service.incidents.list(is_open=True, job=job, before=None, limit=1)
    found = found if may_see("") else list(map(without_others, found))
    written, built_in = split_settings(detail)
    return {
        "title": tab_title(row),
        "detail": detail,
        "namespace": detail.namespace,
        "row": row,
        "job": row.job,
        "incident": show_incident(found[0], row.job.name) if found else None,
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


@page("jobs/{job}", "job.html", place="jobs")
async def show_job(asked: Asked) -> Shown:
    """Show everything about a job."""
    service, job, span = asked.service, asked.job(), asked.query(JobPageQuery).chosen()
    mark = service.pages.mark(job_view(asked, job))  # before anything is read
    values = await values_of(service, job, asked.principal.may_see)
    statistics = await service.past.statistics(job, span)
    found = service.live.find(job)
    limit_ms = found.spec.timeout_ms if found else None
    more = {
        "chart": draw_statistics(statistics, limit_ms),
        "statistics": statistics,
        "span_words": SPAN_WORDS[span],
        "spans": [
            Chip(words=SPAN_WORDS[each], href=f"{asked.to('jobs', job)}?span={each.value}", is_current=each is span)
            for each in TimeSpan
        ],
        "is_short": span is TimeSpan.DAY,
        "ticks": ticks(statistics),
        "after_words": after_words,
        "nobody": "none that you may see" if asked.principal.jobs else "no other job",
        "lines": await last_log_lines(service, job),
        "stored": await stored_values(service, str(values["namespace"])),
        "records": await service.records(job, limit=RECORDS_SHOWN, before_ns=None),
    }
    live = f"view=job:{quote(job)}&since={mark}"
    return Shown(title=str(values["title"]), values={**values, **more}, live=live)


@action("jobs/{job}/run", right=Right.RUN)
async def run_now(asked: Asked) -> web.Response:
    """Start a run of a job, or queue it."""
    await asked.service.start(asked.job())
    return lead_to(asked.back())


@action("jobs/{job}/pause", right=Right.RUN)
async def pause(asked: Asked) -> web.Response:
    """Have the schedule of a job start no more runs."""
    await asked.service.pause(asked.job())
    return lead_to(asked.back())


@action("jobs/{job}/resume", right=Right.RUN)
async def resume(asked: Asked) -> web.Response:
    """Have the schedule of a paused job start runs again."""
    await asked.service.resume(asked.job())
    return lead_to(asked.back())
