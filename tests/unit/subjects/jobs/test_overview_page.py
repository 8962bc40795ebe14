"""The first page, as a browser gets it."""

from __future__ import annotations

import random
import re
from pathlib import Path

from aiohttp import ClientSession
from msgspec import structs

from spyweb.model import JobId
from spyweb.store.model.runs import RunStrip
from spyweb.subjects.jobs.overview import view_row
from spyweb.views.jobs import view_job
from tests.fakes.daemon_service import NOW_MS, make_run, make_spec
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of


def shown(page: str) -> list[str]:
    return re.findall(r'<li id="j-(\w+)"', page)


def hidden(page: str) -> list[str]:
    return re.findall(r'<li hidden id="j-(\w+)"', page)


async def test_it_says_how_it_stands_and_what_needs_somebody() -> None:
    page = await page_of("/")
    assert "1 of 3 jobs failing; 1 file does not load</h1>" in page
    assert "<title" in page
    assert "1 failing · spyweb" in page
    assert re.search(r'failing since <time datetime="2025-12-31T23:00:00Z">00:00:00</time>, 2 runs in a row', page)
    assert "jobs/typo.lua:1: unexpected symbol near &#39;x&#39;" in page
    assert shown(page) == ["backup", "typo", "prices"]


async def test_a_filter_hides_rows_without_javascript() -> None:
    page = await page_of("/?q=pri&sort=name")
    assert (shown(page), hidden(page)) == (["prices"], ["backup", "typo"])
    assert 'value="pri"' in page
    page = await page_of("/?state=failing")
    assert (shown(page), hidden(page)) == (["backup"], ["typo", "prices"])
    page = await page_of("/?state=nonsense&sort=nonsense&tag=none")
    assert shown(page) == []
    assert '<p id="no-match" class="nothing">' in page


async def test_without_jobs_it_teaches_the_first_one(tmp_path: Path) -> None:
    async with dashboard(make_dashboard_service([], tmp_path)) as client:
        _, page = await get_page(client, "/")
    assert "No jobs yet</h1>" in page
    assert f"{tmp_path}/jobs/hello.lua" in page


async def test_a_fragment_says_what_each_bar_was() -> None:
    service = make_dashboard_service()
    service.known_runs = [make_run(2, reason="<script>"), make_run(1)]
    async with dashboard(service) as client:
        status, fragment = await get_page(client, "/jobs/prices/strip")
        assert status == 200
        assert re.findall(r'<li data-href="/runs/(\d)"', fragment) == ["1", "2"]
        assert "&lt;script&gt;" in fragment
        status, page = await get_page(client, "/jobs/pices/strip")
        assert status == 404
        assert "No job is called pices" in page
        assert '<a href="/jobs/prices"><bdi>prices</bdi></a>' in page


async def test_a_thousand_jobs_are_few_bytes() -> None:
    """As transferred; each has its own name, result and next run, and some have their ups and downs."""
    draw = random.Random(7)
    words = ["backup", "invoices", "certificates", "feed", "thermostat", "stock", "rates", "uptime", "report"]
    rows = []
    for number in range(1_000):
        job = JobId(f"{words[number % 9]}_{number:04d}")
        due_ms, result = NOW_MS + 1_000 * draw.randrange(10_000), f"{draw.randrange(900)} rows in 3 pages"
        view = structs.replace(view_job(make_spec(job), last=make_run(result=result)), next_due_ms=due_ms)
        took_ms = [draw.randrange(90_000)] * 40
        weights = draw.choices([[1, 0, 0, 0, 0], [85, 5, 4, 4, 2], [5, 0, 4, 0, 1]], [85, 12, 3])[
            0
        ]  # sound, mixed, bad
        strip = RunStrip(marks="".join(draw.choices("stfkm", weights, k=40)), ids=range(40), took_ms=took_ms)
        rows.append(view_row(view, strip=strip))
    async with dashboard(make_dashboard_service(rows)) as client, ClientSession(auto_decompress=False) as browser:
        headers = {"Accept": "text/html", "Accept-Encoding": "gzip"}
        async with browser.get(client.make_url("/"), headers=headers) as answer:
            assert len(await answer.read()) < 50_000
