"""The overview: how it stands, what needs somebody, and a row of each job."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from msgspec import Struct

from spyweb.dashboard.charts import KINDS
from spyweb.dashboard.frame import Chip, PageFrame
from spyweb.dashboard.incidents import sign_words
from spyweb.dashboard.overview import (
    ATTENTION_SHOWN,
    ORDER_WORDS,
    JobFilter,
    JobOrder,
    in_trouble,
    seen_by,
    show_job,
    sort_rows,
    title_of,
    word_of,
)
from spyweb.model import JobId
from spyweb.service.daemon import DaemonService
from spyweb.store.model.incidents import OpenIncident
from spyweb.views.events import EventType
from spyweb.views.job_detail import schedule_words
from spyweb.views.overview import Overview, OverviewRow, Standing
from spyweb.web.access.principal import Principal
from spyweb.web.pages.outlook import line_of, look
from spyweb.web.pages.page import Asked, Shown, live_view, moments_of, page

if TYPE_CHECKING:
    from spyweb.dashboard.render import Renderer

ROW = "j-"  # begins the id of a row
SUMMARY = ("title", "icon", "count-jobs", "count-incidents", "count-health", "verdict", "attention")
SUMMARY_TEMPLATES = {
    "title": "title.html",
    "icon": "icon.html",
    "count-jobs": "count.html",
    "count-incidents": "count.html",
    "count-health": "count.html",
    "verdict": "verdict.html",
    "attention": "attention.html",
}


class OverviewQuery(Struct, frozen=True):
    """The rows of the list that somebody wants to see, and their order."""

    q: str = ""
    tag: str = ""
    state: str = ""
    sort: str = JobOrder.WORST.value

    def filter(self) -> JobFilter:
        sort = JobOrder(self.sort) if self.sort in set(JobOrder) else JobOrder.WORST
        return JobFilter(q=self.q, tag=self.tag, state=self.state, sort=sort)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewView:
    """The parts of the overview, each of which can change."""

    service: DaemonService
    principal: Principal
    base: str
    renderer: Renderer
    known: Mapping[str, OverviewRow] = field(default_factory=dict)  # rows that need not be asked for

    @property
    def key(self) -> Hashable:
        return "overview", self.base, self.principal.jobs, self.principal.rights

    @property
    def needs(self) -> frozenset[EventType]:
        return frozenset({EventType.RUN, EventType.JOB, EventType.HEALTH, EventType.INCIDENT})

    @property
    def log(self) -> None:
        return None

    def parts(self, subject: str) -> Sequence[str] | None:
        """Return the ids of the parts that depend on a subject; None: all of the page does."""
        kind, _, job = subject.partition(":")
        match kind:
            case "jobs":
                return None
            case "job" if self.principal.may_see(job):
                return [ROW + job, *SUMMARY]
            case "health" | "incident":
                return SUMMARY
            case _:
                return ()

    async def render(self, parts: Sequence[str]) -> Mapping[str, str]:
        """Return each part as it is now; of a job that is gone, none."""
        rendered: dict[str, str] = {}
        frame = PageFrame(base=self.base, moments=moments_of(self.service))
        for part in parts:
            if part.startswith(ROW):
                row = await self._row(part.removeprefix(ROW))
                if row is not None:
                    shown = show_job(row, self._how(row.job.id))
                    rendered[part] = self.renderer.part("job_row.html", frame, {"shown": shown})
        if any(part in SUMMARY for part in parts):
            rendered.update(await self._summary(parts))
        return rendered

    def _how(self, job: JobId) -> str:
        found = self.service.live.find(job)
        return schedule_words(found.spec, self.service.timezone) if found else ""

    async def _row(self, job: str) -> OverviewRow | None:
        return self.known.get(job) or await self.service.overview.row(JobId(job))

    async def _summary(self, parts: Sequence[str]) -> dict[str, str]:
        outlook = await look(self.service, self.principal)
        frame = PageFrame(
            base=self.base,
            moments=moments_of(self.service),
            state=outlook.state,
            counts=outlook.counts,
            may=self.principal.may_do,
        )
        overview = seen_by(await self.service.overview.look(), self.principal.may_see)
        values = {**summary_of(self.service, overview, outlook.incidents), "title": title_of(overview)}
        return {
            part: self.renderer.part(template, frame, {**values, "name": part.removeprefix("count-")})
            for part, template in SUMMARY_TEMPLATES.items()
            if part in parts
        }


def summary_of(service: DaemonService, overview: Overview, incidents: Sequence[OpenIncident]) -> dict[str, object]:
    """Return what stands above the list."""
    trouble = in_trouble(overview.rows)
    shown = trouble[:ATTENTION_SHOWN]
    return {
        "verdict": overview.verdict,
        "open": line_of(service, incidents),
        "sign_words": sign_words,
        "trouble": [show_job(row) for row in shown],
        "more_trouble": len(trouble) - len(shown),
    }


@live_view("overview")
def overview_view(asked: Asked, _argument: str) -> OverviewView:
    return OverviewView(service=asked.service, principal=asked.principal, base=asked.base, renderer=asked.renderer)


@page("", "overview.html", place="jobs", of_job=True)
async def show_overview(asked: Asked) -> Shown:
    """Show how all jobs stand."""
    mark = asked.service.pages.mark(overview_view(asked, ""))  # before anything is read
    live = f"view=overview&since={mark}"
    overview = seen_by(await asked.service.overview.look(), asked.principal.may_see)
    if not overview.rows:
        folder = str(asked.service.root / "jobs")
        return Shown(title="No jobs yet", values={"folder": folder}, template="empty.html", live=live)
    chosen = asked.query(OverviewQuery).filter()
    view = OverviewView(
        service=asked.service,
        principal=asked.principal,
        base=asked.base,
        renderer=asked.renderer,
        known={row.job.id: row for row in overview.rows},
    )
    rows = sort_rows(overview.rows, chosen.sort)
    html = await asked.service.pages.html(view, [ROW + row.job.id for row in rows])
    fits = [chosen.takes(row) for row in rows]
    values = {
        **summary_of(asked.service, overview, (await look(asked.service, asked.principal)).incidents),
        "rows": [(html[ROW + row.job.id], fit) for row, fit in zip(rows, fits, strict=True)],
        "is_any_shown": any(fits),
        "chosen": chosen,
        "tags": overview.tags,
        "orders": [(order.value, words) for order, words in ORDER_WORDS.items()],
        "states": chips_of(overview, chosen, asked.base),
    }
    return Shown(title=title_of(overview), values=values, live=live)


def chips_of(overview: Overview, chosen: JobFilter, base: str) -> list[Chip]:
    """Return a link for each state that a job is in, with how many are."""

    def address(state: str) -> str:
        query = {"q": chosen.q, "tag": chosen.tag, "state": state, "sort": chosen.sort.value}
        if chosen.sort is JobOrder.WORST:
            del query["sort"]
        asked = urlencode({name: value for name, value in query.items() if value})
        return f"{base}?{asked}" if asked else base

    counts = [("", "All", len(overview.rows))]
    counts += [(state, word_of(Standing(state)).capitalize(), count) for state, count in overview.states.items()]
    return [
        Chip(words=words, href=address(state), value=state, is_current=state == chosen.state, count=count)
        for state, words, count in counts
    ]


@page("jobs/{job}/strip", "strip_runs.html", place="jobs")
async def show_strip(asked: Asked) -> Shown:
    """Show what each bar of a strip was: a fragment that is fetched when somebody points at it."""
    bars = await asked.service.overview.bars(asked.job())
    words = {letter: word for letter, (_, word) in KINDS.items()}
    return Shown(title="", values={"bars": bars, "kind_words": words})
