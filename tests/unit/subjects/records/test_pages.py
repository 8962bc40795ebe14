"""The page of records."""

from __future__ import annotations

import re

import pytest

from spyweb.model import JobId
from spyweb.store.model.access import Scope
from spyweb.store.model.records import NewRecord
from spyweb.subjects.records.pages import is_web
from tests.fakes.daemon_service import BACKUP, PRICES, FakeDaemonService
from tests.fakes.dashboard import MARKUP, dashboard, get_page, make_dashboard_service, page_of, signed_in
from tests.fakes.findings import item


async def with_records(count: int = 3, job: JobId = PRICES, **fields: str) -> FakeDaemonService:
    service = make_dashboard_service()
    await add(service, count, job, **fields)
    return service


async def add(service: FakeDaemonService, count: int, job: JobId, **fields: str) -> None:
    items = [item(f"{job} no {n}", matches=(MARKUP,), **fields) for n in range(1, count + 1)]
    await service.found.records.add(job, items)


def titles(page: str) -> list[str]:
    return re.findall(r'noopener">([^<]*)</a></h3>', page)


async def test_the_newest_come_first_with_their_fields_and_job() -> None:
    page = await page_of("/records", await with_records(price="12 €"))
    assert "3\N{NO-BREAK SPACE}records</h1>" in page
    assert titles(page) == ["prices no 3", "prices no 2", "prices no 1"]
    assert "<dt>price</dt><dd>12 €</dd>" in page
    assert '<a href="/jobs/prices"><bdi>prices</bdi></a>' in page


async def test_a_search_finds_and_says_what_it_looked_for() -> None:
    async with dashboard(await with_records()) as client:
        _, page = await get_page(client, "/records?q=NO%202")
        assert titles(page) == ["prices no 2"]
        assert 'name="q" value="NO 2"' in page
        _, page = await get_page(client, "/records?q=nothing")
        assert "No record holds “nothing”." in page


async def test_a_job_is_chosen_and_its_table_is_offered() -> None:
    service = await with_records()
    await add(service, 2, BACKUP)
    page = await page_of("/records?job=backup&q=no", service)
    assert titles(page) == ["backup no 2", "backup no 1"]
    assert 'href="/api/records.csv?job_id=backup&amp;q=no"' in page
    assert '<a href="/records?q=no&amp;job=prices">prices <small>3</small></a>' in page


async def test_what_was_found_is_text() -> None:
    service = await with_records(1, PRICES, **{MARKUP: MARKUP})
    items = [NewRecord(hash=b"x", fields={"title": "evil", "a": "x" * 500}, url="javascript:alert(1)")]
    await service.found.records.add(PRICES, items)
    page = await page_of(f"/records?q=&job={PRICES}", service)
    assert page.count("&lt;script&gt;") == 3
    assert 'href="javascript' not in page
    assert "x" * 400 + "…" in page
    page = await page_of("/records?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", service)


async def test_whoever_may_see_some_jobs_sees_the_records_of_those() -> None:
    service = await with_records()
    await add(service, 1, BACKUP)
    limited = await signed_in(service, Scope.READ, jobs=("backup",))
    page = await page_of("/records", service, limited)
    assert titles(page) == ["backup no 1"]
    assert "1\N{NO-BREAK SPACE}record</h1>" in page
    assert "prices" not in page
    assert "records.csv" not in page, "that of all jobs is not for this key"
    await page_of("/records?job=prices", service, limited, status=404)
    assert "records.csv" in await page_of("/records?job=backup", service, limited)


@pytest.mark.parametrize(
    ("address", "leads"),
    [
        ("https://a.example/", True),
        ("http://a", True),
        ("javascript:alert(1)", False),
        ("", False),
        ("http://[", False),
    ],
)
def test_only_pages_of_the_web_are_led_to(address: str, leads: bool) -> None:
    assert is_web(address) is leads
