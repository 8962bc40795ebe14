"""A dashboard over three known jobs: `prices` is well, `backup` fails, `typo` does not load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from spyweb.cooperative import run_at_once
from spyweb.errors import Refused
from spyweb.model import JobId, Outcome, RunId, RunMark
from spyweb.runs.live import LiveJobs
from spyweb.specs.origins import OriginKind, ResolvedSetting
from spyweb.store.past_runs_protocol import FailingSeries, RunPoint, RunStrip
from spyweb.views.job_detail import JobDetail, LastError, ProblemView, Tie
from spyweb.views.jobs import next_run
from spyweb.views.overview import Overview, OverviewRow, make_overview, view_row
from spyweb.views.source import SourceView
from spyweb.views.strips import Bar, view_bar
from spyweb.web.app import Site, tcp_app
from tests.fakes.client import Client, client_of
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import BACKUP, NOW_MS, PRICES, FakeDaemonService, make_run, three_jobs, with_key

HOUR_MS = 3_600_000
STRIPS = {
    PRICES: RunStrip(ids=list(range(1, 41)), marks="s" * 40, took_ms=[1_234] * 40),
    BACKUP: RunStrip(ids=list(range(41, 44)), marks="sff", took_ms=[600, 20, 20]),
}
FAILURES = {BACKUP: FailingSeries(since_ms=NOW_MS - HOUR_MS, count=2, first=RunId(42))}


def three_rows() -> list[OverviewRow]:
    rows = [
        view_row(job, strip=STRIPS.get(job.id, RunStrip()), series=FAILURES.get(job.id), held_up=["report"])
        for job in three_jobs()
    ]
    return [structs.replace(row, job=row.job) for row in rows]


def overview_of(rows: Sequence[OverviewRow], problems: Sequence[str] = (), warnings: Sequence[str] = ()) -> Overview:
    return run_at_once(make_overview(rows, problems=problems, warnings=warnings, now_ms=NOW_MS))


@dataclass(slots=True)
class FakeOverviewService:
    rows: list[OverviewRow] = field(default_factory=three_rows)
    warnings: Sequence[str] = ()

    async def look(self) -> Overview:
        return overview_of(self.rows, warnings=self.warnings)

    async def row(self, job: JobId) -> OverviewRow | None:
        return next((row for row in self.rows if row.job.id == job), None)

    async def bars(self, job: JobId) -> list[Bar]:
        return [view_bar(make_run(number, job=job, reason="<script>")) for number in (1, 2)]


MARKUP = '"><script>alert(1)</script>'


def make_detail(row: OverviewRow) -> JobDetail:
    """Make the details of a job in which each text holds markup."""
    job = row.job.id
    source = SourceView(file=f"jobs/{job}.lua", first=2, lines=[MARKUP, "local a = 1", "-- <b>"], line=3, total=4)
    problem = ProblemView(file=MARKUP, line=3, key=MARKUP, reason=MARKUP, is_warning=False)
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


@dataclass(slots=True)
class FakeDetails:
    overview: FakeOverviewService

    async def detail(self, job: JobId) -> JobDetail:
        row = await self.overview.row(job)
        assert row is not None
        return make_detail(row)

    async def source(self, job: JobId, file: str | None = None) -> SourceView:
        if file not in (None, f"jobs/{job}.lua"):
            raise Refused(f"{job} has no Lua file {file!r}")
        return SourceView(file=f"jobs/{job}.lua", first=1, lines=["local a = 1", MARKUP], line=None, total=2)


class FakePastRuns:
    """Runs of the last hour, each a second longer than the one before."""

    async def points(self, job: JobId, *, since_ms: int, limit: int, before: RunId | None = None) -> list[RunPoint]:
        points = [
            RunPoint(run=n, at_ms=NOW_MS - 60_000 * n, took_ms=1_000 * (n + 1), late_ms=n, mark=RunMark.SUCCESS)
            for n in range(60)
        ]
        return [point for point in points if point.at_ms >= since_ms][:limit]


def make_dashboard_service(rows: Sequence[OverviewRow] | None = None, root: Path | None = None) -> FakeDaemonService:
    service = FakeDaemonService(root=root)
    service.clock = FakeClock(NOW_MS)
    service.timezone = "Europe/Berlin"
    service.overview = FakeOverviewService(list(rows) if rows is not None else three_rows())  # type: ignore[assignment]
    service.details = FakeDetails(service.overview)  # type: ignore[arg-type, assignment]
    service.past_runs = FakePastRuns()  # type: ignore[assignment]
    service.live = LiveJobs()
    return service


@asynccontextmanager
async def dashboard(
    service: FakeDaemonService | None = None, *, api_key: str | None = None, ui: Path | None = None
) -> AsyncIterator[Client]:
    service = service or make_dashboard_service()
    if api_key:
        with_key(service, api_key)
    async with client_of(tcp_app(service, Site(ui=ui))) as client:
        yield client


async def get_page(client: Client, path: str, **headers: str) -> tuple[int, str]:
    """Ask as a browser does."""
    async with client.get(path, headers={"Accept": "text/html", **headers}, allow_redirects=False) as answer:
        return answer.status, await answer.text()
