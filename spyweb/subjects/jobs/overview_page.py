"""The overview: how it stands, what needs somebody, and a row of each job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from spyweb.store.model.incidents import job_of
from spyweb.subjects.health.service import HealthService
from spyweb.subjects.incidents.service import IncidentService
from spyweb.subjects.incidents.words import open_line, sign_words
from spyweb.subjects.jobs.overview import (
    ATTENTION,
    SHOWN_RUNS,
    Overview,
    OverviewRow,
    OverviewService,
    Standing,
    overview_seen_by,
)
from spyweb.subjects.jobs.service import JobService
from spyweb.subjects.jobs.views import schedule_words
from spyweb.subjects.jobs.words import (
    ATTENTION_SHOWN,
    ORDER_WORDS,
    JobFilter,
    in_trouble,
    show_job,
    sort_rows,
    state_of,
    title_of,
    word_of,
)
from spyweb.subjects.runs.service import PastRunsService
from spyweb.subjects.runs.words import show_run
from spyweb.views.strips import late_after
from spyweb.web.access.principal import Principal
from spyweb.web.api.services import Outlook
from spyweb.web.pages.frame import PageFrame
from spyweb.web.pages.page import Asked, DashboardPage, PagePart, Shown

TOGETHER = 25  # rows made at a time, before others have their turn
ROW = "j-"  # begins the id of a row
PARTS = {
    "title": PagePart("title.html", ("job:*", "health", "incident")),
    "verdict": PagePart("verdict.html", ("job:*", "health", "incident")),
    "attention": PagePart("attention.html", ("job:*", "health", "incident")),
    ROW + "*": PagePart("job_row.html", ("job:*",)),
}


def outlook_of(
    overview: OverviewService, health: HealthService, incidents: IncidentService
) -> Callable[[Principal], Awaitable[Outlook]]:
    """Return what tells how all stands that somebody may see: counted alone, since every page asks for it."""

    async def look(principal: Principal) -> Outlook:
        rows = await overview.all_rows()
        standings = [row.standing for row in rows if principal.may_see(row.job.id)]
        problems, warnings = health.troubles() if len(standings) == len(rows) else ((), ())
        found = await incidents.all_open()
        if principal.jobs:
            found = [each for each in found if principal.may_see(job_of(each.subject) or "")]
        state = state_of(standings, problems, warnings)
        counts = {
            "jobs": sum(standing in ATTENTION for standing in standings),
            "health": len(problems) + len(warnings),
            "incidents": len(found),
        }
        return Outlook("warn" if state == "ok" and found else state, counts, found)

    return look


async def rows_of(asked: Asked, rows: Iterable[OverviewRow]) -> dict[str, str]:
    """Render rows, giving way in between; one that is as it was is not rendered anew: it is the same for everybody."""
    services, frame = asked.services, PageFrame(moments=asked.moments)
    rendered = services[OverviewService].rendered
    html: dict[str, str] = {}
    for count, row in enumerate(rows):
        job = row.job.id
        kept = rendered.get(job)
        if kept is None or kept[0] is not row:  # it is another object where anything of it is another
            spec = services.catalogue.spec(job)
            how = schedule_words(spec, services.timezone) if spec else ""
            kept = row, asked.renderer.part("job_row.html", frame, {"shown": show_job(row, how)})
            rendered[job] = kept
        html[ROW + job] = kept[1]
        if count % TOGETHER == TOGETHER - 1:
            await services.clock.sleep(0)
    return html


async def summary_of(asked: Asked, overview: Overview) -> dict[str, object]:
    """Return what stands above the list."""
    trouble = in_trouble(overview.rows)
    shown = trouble[:ATTENTION_SHOWN]
    return {
        "verdict": overview.verdict,
        "open": open_line((await asked.outlook()).incidents, partial(_name_of, asked)),
        "sign_words": sign_words,
        "trouble": [show_job(row) for row in shown],
        "more_trouble": len(trouble) - len(shown),
    }


def _name_of(asked: Asked, subject: str) -> str:
    """Return the name of the job that a subject is; nothing of one that is no job, or gone."""
    spec = asked.services.catalogue.spec(job_of(subject))
    return spec.name if spec else ""


@DashboardPage("", "overview.html", place="jobs", of_job=True, parts=PARTS, anew=("jobs",))
async def show_overview(asked: Asked) -> Shown:
    """Show how all jobs stand."""
    overview = overview_seen_by(await asked.services[OverviewService].look(), asked.principal.may_see)
    title = title_of(overview)
    if not overview.rows:
        folder = str(asked.services[JobService].root / "jobs")
        return Shown(title="No jobs yet", values={"folder": folder}, template="empty.html")
    if asked.parts:
        html = await rows_of(asked, [row for row in overview.rows if ROW + row.job.id in asked.parts])
        return Shown(title=title, values=await summary_of(asked, overview), html=html)
    chosen = asked.query(JobFilter)
    rows = sort_rows(overview.rows, chosen.sort)
    html = await rows_of(asked, rows)
    fits = [chosen.takes(row) for row in rows]
    values = {
        **await summary_of(asked, overview),
        "rows": [(html[ROW + row.job.id], fit) for row, fit in zip(rows, fits, strict=True)],
        "is_any_shown": any(fits),
        "chosen": chosen,
        "tags": overview.tags,
        "orders": [(order.value, words) for order, words in ORDER_WORDS.items()],
        "states": asked.chips(
            chosen,
            "state",
            [("", "All"), *((state, word_of(Standing(state)).capitalize()) for state in overview.states)],
            {**overview.states, "": len(overview.rows)},
        ),
    }
    return Shown(title=title, values=values)


@DashboardPage("jobs/{job}/strip", "strip_runs.html", place="jobs")
async def show_strip(asked: Asked) -> Shown:
    """Show what each bar of a strip was: a fragment that is fetched when somebody points at it."""
    job = asked.job()
    newest = await asked.services[PastRunsService].newest(job, limit=SHOWN_RUNS, before=None)
    late_ms = late_after(asked.services.catalogue.spec(job))
    return Shown(title="", values={"runs": [show_run(run, late_ms) for run in reversed(newest)]})
