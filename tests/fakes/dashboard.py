"""A dashboard over three known jobs: `prices` is well, `backup` fails, `typo` does not load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from spyweb.clock import Clock
from spyweb.cooperative import run_at_once
from spyweb.events.hub import EventHub
from spyweb.model import HistoryRule, JobId, RunId
from spyweb.settings.units import HOUR_MS
from spyweb.store.model.access import Scope
from spyweb.store.model.runs import FailingSeries, RunStrip
from spyweb.subjects.jobs.overview import Overview, OverviewRow, make_overview, view_row
from spyweb.subjects.jobs.service import OverviewService
from spyweb.subjects.records.service import RecordSearch
from spyweb.web.app import tcp_app
from tests.fakes.client import Client, client_of
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import BACKUP, NOW_MS, PRICES, FakeDaemonService, make_state, three_jobs, with_key
from tests.fakes.keys import COOKIE
from tests.fakes.memory_store import MemoryStore

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


def make_dashboard_service(
    rows: Sequence[OverviewRow] | None = None,
    root: Path | None = None,
    hub: EventHub | None = None,
    clock: Clock | None = None,
) -> FakeDaemonService:
    service = FakeDaemonService(root=root, hub=hub, clock=clock or FakeClock(NOW_MS))
    service.timezone = "Europe/Berlin"
    service.overview = FakeOverviewService(list(rows) if rows is not None else three_rows())
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


async def signed_in(
    service: FakeDaemonService, *scopes: Scope, jobs: tuple[str, ...] = (), name: str = "anna"
) -> dict[str, str]:
    made = await service.access.add(name, scopes, jobs)
    found = service.access.admit_token(made.token)
    assert found
    return {**POST, "Cookie": f"{COOKIE}={service.access.sign_in(found)}"}
