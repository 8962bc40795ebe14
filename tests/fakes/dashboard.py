"""A dashboard over three known jobs: `prices` is well, `backup` fails, `typo` does not load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp.test_utils import make_mocked_request
from msgspec import structs

from spyweb.clock import Clock
from spyweb.cooperative import run_at_once
from spyweb.errors import Problem, Refused
from spyweb.events.hub import EventHub
from spyweb.model import Every, HistoryRule, JobId, Outcome, Run, RunId, RunMark, TriggerType
from spyweb.specs.origins import OriginKind, ResolvedSetting
from spyweb.store.model.access import Scope
from spyweb.store.model.runs import FailingSeries, RunFilter, RunPage, RunPoint, RunStrip
from spyweb.subjects.jobs.overview import Overview, OverviewRow, OverviewService, make_overview, view_row
from spyweb.subjects.jobs.service import JobDetails
from spyweb.subjects.jobs.views import JobDetail, LastError, Tie
from spyweb.subjects.records.service import RecordSearch
from spyweb.subjects.runs.views import (
    CauseStep,
    JobStatistics,
    LimitView,
    RunDetail,
    RunLog,
    TimeSpan,
    brief,
    make_statistics,
    run_words,
)
from spyweb.subjects.when.service import DayAhead, GapPage, day_ahead, view_gap
from spyweb.views.jobs import MaySee, anything, next_run
from spyweb.views.runs import TaskView
from spyweb.views.source import SourceView, TraceFrame
from spyweb.views.strips import lateness_of, mark_of, moment_of, took_of
from spyweb.web.access.principal import LOOPBACK, PRINCIPAL, Principal
from spyweb.web.app import tcp_app
from spyweb.web.pages.page import Asked
from tests.fakes.client import Client, client_of
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import (
    BACKUP,
    NOW_MS,
    PRICES,
    FakeCalendar,
    FakeDaemonService,
    FakePast,
    make_run,
    make_state,
    three_jobs,
    with_key,
)
from tests.fakes.harness import make_planned
from tests.fakes.keys import COOKIE
from tests.fakes.memory_store import MemoryStore

HOUR_MS = 3_600_000
HISTORY = {"global": HistoryRule(versions=10), "scope:billing": HistoryRule(versions=10)}
STRIPS = {
    PRICES: RunStrip(ids=list(range(1, 41)), marks="s" * 40, took_ms=[1_234] * 40),
    BACKUP: RunStrip(ids=list(range(41, 44)), marks="sff", took_ms=[600, 20, 20]),
}
FAILURES = {BACKUP: FailingSeries(since_ms=NOW_MS - HOUR_MS, count=2, first=RunId(42))}


def three_rows() -> list[OverviewRow]:
    return [
        view_row(job, strip=STRIPS.get(job.id, RunStrip()), series=FAILURES.get(job.id), held_up=["report"])
        for job in three_jobs()
    ]


def overview_of(rows: Sequence[OverviewRow], problems: Sequence[str] = ()) -> Overview:
    return run_at_once(make_overview(rows, problems=problems, warnings=(), now_ms=NOW_MS))


class FakeOverviewService(OverviewService):
    def __init__(self, rows: list[OverviewRow]) -> None:
        self.rows = rows
        self.rendered = {}

    async def all_rows(self) -> list[OverviewRow]:
        return self.rows

    async def look(self) -> Overview:
        return overview_of(self.rows)

    async def row(self, job: JobId) -> OverviewRow | None:
        return next((row for row in self.rows if row.job.id == job), None)


MARKUP = '"><script>alert(1)</script>'


def make_detail(row: OverviewRow) -> JobDetail:
    """Make the details of a job in which each text holds markup."""
    job = row.job.id
    source = SourceView(file=f"jobs/{job}.lua", first=2, lines=[MARKUP, "local a = 1", "-- <b>"], line=3, total=4)
    problem = Problem(MARKUP, 3, MARKUP, MARKUP)
    error = LastError(
        run=RunId(43), at_ms=NOW_MS, reason=MARKUP, failure="error", frames=(), source=source, is_same=True
    )
    return JobDetail(
        row=row,
        schedule=f"every 30 seconds {MARKUP}",
        next_due=[next_run(job, NOW_MS + 30_000 * n, "Europe/Berlin") for n in (1, 2)],
        problems=[problem],
        source=source,
        error=error if row.failing else None,
        follows=[Tie(job=JobId(MARKUP), name=MARKUP, outcomes=[Outcome.SUCCESS], is_there=False)],
        followed_by=[Tie(job=JobId("report"), name=MARKUP, outcomes=[Outcome.FAILED, Outcome.LOST])],
        listens=[MARKUP],
        settings=[
            ResolvedSetting(key="every", value=MARKUP, origin=OriginKind.FILE, file=MARKUP, line=1, words=MARKUP),
            ResolvedSetting(key="timeout", value="5m", origin=OriginKind.BUILT_IN, words="built in"),
        ],
        files=[f"jobs/{job}.lua", MARKUP],
        pages=[MARKUP],
        generation=3,
        namespace=f"job:{job}",
    )


class FakeDetails(JobDetails):
    __setattr__ = object.__setattr__

    def __init__(self, overview: OverviewService, is_elsewhere: bool = False) -> None:
        self.rows, self.is_elsewhere = overview, is_elsewhere

    async def detail(self, job: JobId) -> JobDetail:
        row = await self.rows.row(job)
        assert row is not None
        return structs.replace(make_detail(row), is_elsewhere=self.is_elsewhere)

    async def source(self, job: JobId, file: str | None = None) -> SourceView:
        if file not in (None, f"jobs/{job}.lua"):
            raise Refused(f"{job} has no Lua file {file!r}")
        return SourceView(file=f"jobs/{job}.lua", first=1, lines=["local a = 1", MARKUP], line=None, total=2)


def make_run_detail(run: Run, **changes: object) -> RunDetail:
    """Make the details of a run in which each text holds markup."""
    job = run.job
    source = SourceView(file=f"jobs/{job}.lua", first=1, lines=["local a = 1", MARKUP], line=2, total=2)
    began = (run.started_ms or NOW_MS) / 1000
    detail = RunDetail(
        run=run,
        name=MARKUP,
        words=run_words(run),
        mark=mark_of(run),
        at_ms=moment_of(run),
        took_ms=took_of(run),
        late_ms=lateness_of(run),
        causes=[CauseStep(kind=TriggerType.AFTER, words=MARKUP, at_ms=NOW_MS, run=brief(make_run(1)))],
        attempts=[brief(run), brief(make_run(int(run.id) + 1, job=job, attempt=2))],
        followers=[brief(make_run(99, job=JobId(MARKUP), reason=MARKUP))],
        tasks=[
            TaskView(task=MARKUP, workflow="", status="success", started_at=began, took_ms=600),
            TaskView(task="push", workflow="", status="failed", started_at=began + 0.6, took_ms=100, message=MARKUP),
            TaskView(task="restart", workflow="", status="skipped"),
        ],
        frames=[TraceFrame(text=MARKUP, file=f"jobs/{job}.lua", line=2), TraceFrame(text="[C]: in error")],
        source=source,
        log=RunLog(lines=[f"2026-01-01T00:00:00.012Z WARN {MARKUP}"], is_cut=True, is_shared=True),
        limits=[
            LimitView(name="time", used=20_400, limit=60_000, unit="ms", words="", is_over=True),
            LimitView(name="memory", used=None, limit=64 << 20, unit="bytes", words=""),
        ],
        before=RunId(2),
    )
    return structs.replace(detail, **changes)


class DashboardPast(FakePast):
    """Past runs: those that the service knows, and 60 in the last hour, each a second longer than the one before."""

    def __init__(self, service: FakeDaemonService) -> None:
        self.service = service
        self.searched = list[RunFilter]()

    async def statistics(self, job: JobId, span: TimeSpan) -> JobStatistics:
        points = [
            RunPoint(run=n, at_ms=NOW_MS - 60_000 * n, took_ms=1_000 * (n + 1), late_ms=n, mark=RunMark.SUCCESS)
            for n in range(59, -1, -1)
        ]
        return make_statistics(job, span, points, NOW_MS)

    async def search(self, wanted: RunFilter, *, limit: int, before: RunId | None = None) -> RunPage:
        self.searched.append(wanted)
        return RunPage(runs=self.service.known_runs[:limit], before=RunId(1))

    async def detail(self, run: RunId) -> RunDetail:
        return make_run_detail(next(each for each in self.service.known_runs if each.id == run))

    async def find(self, run: RunId) -> Run | None:
        return next((each for each in self.service.known_runs if each.id == run), None)


class CrowdedCalendar(FakeCalendar):
    """A day in which many jobs start at three o'clock, and gaps whose texts hold markup."""

    def __init__(self, jobs: int = 3, gaps_known: int = 3) -> None:
        self.jobs, self.gaps_known = jobs, gaps_known

    async def day_ahead(self, may_see: MaySee = anything) -> DayAhead:
        three = next(hour for hour in range(24) if (NOW_MS // HOUR_MS + hour) % 24 == 2)  # in Berlin
        names = [PRICES, BACKUP, *(JobId(f"job-{n:03}") for n in range(2, self.jobs))][: self.jobs]
        planned = [
            make_planned(name, Every(period_ms=86_400_000), NOW_MS + three * HOUR_MS - 86_400_000 + n)
            for n, name in enumerate(names)
            if may_see(name)
        ]
        for job in planned:
            job.spec = structs.replace(job.spec, name=f"{job.id} {MARKUP}")
        return run_at_once(day_ahead(planned, NOW_MS))

    async def gaps(
        self,
        job: JobId | None = None,
        *,
        since_ms: int | None = None,
        limit: int = 50,
        before: RunId | None = None,
        may_see: MaySee = anything,
    ) -> GapPage:
        outcomes = (Outcome.MISSED, Outcome.SKIPPED, Outcome.PAUSED, Outcome.LOST)
        gaps = [
            view_gap(
                make_run(n, outcome=outcomes[n % 4], reason=MARKUP, count=n, last_due_ms=NOW_MS),
                MARKUP,
                brief(make_run(n + 1)) if n % 2 else None,
            )
            for n in range(self.gaps_known, 0, -1)
            if (before is None or n < before) and job in (None, PRICES) and may_see(PRICES)
        ]
        more = gaps[limit - 1].run if len(gaps) > limit else None
        return GapPage(gaps=gaps[:limit], count=sum(gap.count for gap in gaps), before=more)


def make_dashboard_service(
    rows: Sequence[OverviewRow] | None = None,
    root: Path | None = None,
    hub: EventHub | None = None,
    clock: Clock | None = None,
) -> FakeDaemonService:
    service = FakeDaemonService(root=root, hub=hub, clock=clock or FakeClock(NOW_MS))
    service.timezone = "Europe/Berlin"
    service.overview = FakeOverviewService(list(rows) if rows is not None else three_rows())
    service.details = FakeDetails(service.overview)
    service.past = DashboardPast(service)
    service.calendar = CrowdedCalendar()
    service.state = make_state(service.clock, HISTORY)
    records = MemoryStore(service.clock).records
    service.found = RecordSearch(records=records, live=service.live, clock=service.clock)
    return service


@asynccontextmanager
async def dashboard(service: FakeDaemonService | None = None, *, api_key: str | None = None) -> AsyncIterator[Client]:
    service = service or make_dashboard_service()
    if api_key:
        with_key(service, api_key)
    async with client_of(tcp_app(service)) as client:
        yield client


async def get_page(client: Client, path: str, **headers: str) -> tuple[int, str]:
    """Ask as a browser does; what others have written is text on every page."""
    async with client.get(path, headers={"Accept": "text/html", **headers}, allow_redirects=False) as answer:
        page = await answer.text()
    assert "<script>alert" not in page
    return answer.status, page


async def page_of(
    path: str, service: FakeDaemonService | None = None, headers: Mapping[str, str] | None = None, status: int = 200
) -> str:
    """Return one page of a dashboard."""
    async with dashboard(service) as client:
        answered, page = await get_page(client, path, **(headers or {}))
    assert answered == status
    return page


def asked_of(service: FakeDaemonService, principal: Principal = LOOPBACK, path: str = "/") -> Asked:
    """Return a request for a page, as its handler and its view are given it."""
    from spyweb.web.pages.render import renderer

    request = make_mocked_request("GET", path)
    request[PRINCIPAL] = principal
    return Asked(request=request, principal=principal, services=service, renderer=renderer())


POST = {"Accept": "text/html"}


async def post_form(
    service: FakeDaemonService, path: str, headers: Mapping[str, str] | None = None, **fields: str
) -> tuple[int, str, str]:
    """Send a form as a browser does; return the status, where the browser is led, and the page."""
    data = {"x": "", **fields}
    async with (
        dashboard(service) as client,
        client.post(path, data=data, headers={**POST, **(headers or {})}, allow_redirects=False) as answer,
    ):
        return answer.status, answer.headers.get("Location", ""), await answer.text()


async def signed_in(service: FakeDaemonService, *scopes: Scope, jobs: tuple[str, ...] = ()) -> dict[str, str]:
    made = await service.access.add("anna", scopes, jobs)
    found = service.access.admit_token(made.token)
    assert found
    return {**POST, "Cookie": f"{COOKIE}={service.access.sign_in(found)}"}
