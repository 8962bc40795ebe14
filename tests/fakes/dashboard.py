"""A dashboard over three known jobs: `prices` is well, `backup` fails, `typo` does not load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from spyweb.cooperative import run_at_once
from spyweb.model import JobId, RunId
from spyweb.store.past_runs_protocol import FailingSeries, RunStrip
from spyweb.views.overview import Overview, OverviewRow, make_overview, view_row
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


def make_dashboard_service(rows: Sequence[OverviewRow] | None = None, root: Path | None = None) -> FakeDaemonService:
    service = FakeDaemonService(root=root)
    service.clock = FakeClock(NOW_MS)
    service.timezone = "Europe/Berlin"
    service.overview = FakeOverviewService(list(rows) if rows is not None else three_rows())  # type: ignore[assignment]
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
