"""Records on their page, and by `spyweb records`."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.store.model.access import Scope
from spyweb.store.model.records import NewRecord, Record
from spyweb.store.sqlite.store import open_store
from spyweb.subjects.records.commands import PAGE, moment_of, to_csv
from spyweb.subjects.records.pages import is_web
from spyweb.subjects.records.views import RecordView, view_record
from tests.fakes.changes import NEWS
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import BACKUP, MARKUP, PRICES, FakeDaemonService
from tests.fakes.daemon_socket import serve_daemon_socket
from tests.fakes.dashboard import make_dashboard_service, page_of, signed_in
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


async def test_a_change_shows_the_old_text_struck_out_before_the_new_one() -> None:
    service = make_dashboard_service()
    for price in ("30.99 €", "24.99 €"):
        await service.found.records.add(PRICES, [replace(item("Lamp", price=price), tracked={"price": price})])
    page = await page_of("/records", service)
    assert "<dt>price</dt><dd><del>30.99 €</del> → 24.99 €</dd>" in page
    assert "<dt>price</dt><dd>30.99 €</dd>" in page
    assert titles(await page_of("/records?q=30.99", service)) == ["Lamp", "Lamp"]


async def test_a_job_is_chosen_and_its_table_is_offered() -> None:
    service = await with_records()
    await add(service, 2, BACKUP)
    page = await page_of("/records?job=backup&q=no", service)
    assert titles(page) == ["backup no 2", "backup no 1"]
    assert 'href="/api/records.csv?job_id=backup&amp;q=no"' in page
    assert '<a href="/records?job=prices&amp;q=no">prices <small>3</small></a>' in page


async def test_what_was_found_is_text() -> None:
    service = await with_records(1, PRICES, **{MARKUP: MARKUP})
    script, web = "javascript:alert(1)", 'http://a.example/"><script>'
    fields = {"title": "evil", "a": "x" * 500, "link": script, "web": web}
    items = [NewRecord(hash=b"x", fields=fields, url=script)]
    await service.found.records.add(PRICES, items)
    page = await page_of(f"/records?q=&job={PRICES}", service)
    assert page.count("&lt;script&gt;") == 5
    assert '<a href="http://a.example/&#34;&gt;&lt;script&gt;"' in page
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


HOUR_MS = 3_600_000


def record(root: Path, *items: NewRecord, job: JobId = PRICES, clock: FakeClock | None = None) -> None:
    async def add() -> None:
        store = await open_store(root / "data" / "spyweb.db", clock=clock or FakeClock())
        await store.records.add(job, items)
        await store.close()

    asyncio.run(add())


def shown_titles(answer: Any) -> list[str]:
    return [each["title"] for each in answer]


def views(count: int, job: JobId = PRICES) -> list[RecordView]:
    return [
        view_record(Record(timestamp_ns=START_MS * 1_000_000 + n, job=job, hash=b"", fields={"title": str(n)}))
        for n in reversed(range(count))
    ]


def test_records_are_a_table_newest_first_with_a_column_for_each_field(project: Path) -> None:
    record(project, item("Tea", price="1 €", matches=["sale", "tea"]), item("C" * 300, size="L"))
    answer = spyweb("records", "Prices", root=project)

    assert answer.code == 0
    assert answer.lines[0].split() == ["found", "title", "size", "price", "keywords"]
    assert answer.table == [
        ["Thu 2026-01-01 00:00:00 UTC", f"{'C' * 199}…", "L"],
        ["Thu 2026-01-01 00:00:00 UTC", "Tea", "1 €", "sale, tea"],
    ]


def test_without_a_job_the_newest_of_all_are_shown_and_a_change_with_its_old_value(project: Path) -> None:
    record(project, item("News"), job=NEWS)
    for price in ("30.99 €", "24.99 €"):
        record(project, replace(item("Lamp", price=price), tracked={"price": price}))
    answer = spyweb("records", "-n", "2", root=project)

    assert answer.lines[0].split() == ["found", "job", "title", "price", "keywords"]
    assert [row[1:] for row in answer.table] == [["prices", "Lamp", "30.99 € → 24.99 €"], ["prices", "Lamp", "30.99 €"]]
    found = spyweb("records", "-o", "json", root=project).json
    assert [(each["job_id"], each["old"]) for each in found] == [
        ("prices", {"price": "30.99 €"}),
        ("prices", {}),
        ("news", {}),
    ]
    header, first, *_ = csv.reader(io.StringIO(spyweb("records", "-o", "csv", root=project).out))
    assert header == ["date_time", "title", "price", "keywords", "page_url", "job", "old"]
    assert first[1:] == ["Lamp", "24.99 €", "", "https://shop.example/", "prices", '{"price":"30.99 €"}']


def test_csv_keeps_commas_quotes_and_line_breaks(project: Path) -> None:
    record(project, item('a "b", c\nd', matches=["x", "y"]), item("plain", price="2"))
    answer = spyweb("records", "prices", "-o", "csv", root=project)
    header, *rows = csv.reader(io.StringIO(answer.out))

    moment, page = "2026-01-01T00:00:00.000Z", "https://shop.example/"
    assert header == ["date_time", "title", "price", "keywords", "page_url"]
    assert rows == [[moment, "plain", "2", "", page], [moment, 'a "b", c\nd', "", "x y", page]]


def test_the_newest_are_shown_and_how_many_may_be_said(project: Path) -> None:
    record(project, *(item(str(number)) for number in range(30)))

    assert len(shown_titles(spyweb("records", "prices", "-o", "json", root=project).json)) == 20
    assert shown_titles(spyweb("records", "prices", "-n", "2", "-o", "json", root=project).json) == ["29", "28"]


def test_since_leaves_out_what_is_older(project: Path) -> None:
    clock = FakeClock()
    for title in ("first", "second", "third"):
        record(project, item(title), clock=clock)
        clock.advance(3600)
    since = ("--since", "2026-01-01T01:00")

    assert shown_titles(spyweb("records", "prices", *since, "-o", "json", root=project).json) == ["third", "second"]
    answer = spyweb("records", "prices", "--since", "2026-01-02", root=project)
    assert (answer.code, answer.out, answer.err) == (0, "", "no records\n")


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("2h", START_MS - 2 * HOUR_MS),
        ("90", START_MS - 90_000),
        ("2026-01-01T00:00:00Z", START_MS),
        ("2026-01-01T02:00+01:00", START_MS + HOUR_MS),
        ("2026-01-01", START_MS - 9 * HOUR_MS),
    ],
)
def test_since_is_an_age_or_a_moment_in_the_daemons_zone(text: str, expected_ms: int) -> None:
    assert moment_of(text, START_MS, "Asia/Tokyo") == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "-5", "9" * 300, "2026-13-01"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="expected an age"):
        moment_of(text, START_MS, "UTC")


def test_a_job_that_is_gone_has_its_records_and_one_that_never_was_is_refused(project: Path) -> None:
    record(project, item("Tea"), job=JobId("old"))

    assert shown_titles(spyweb("records", "old", "-o", "json", root=project).json) == ["Tea"]
    answer = spyweb("records", "prizes", root=project)
    assert (answer.code, "prices" in answer.err) == (2, True)


def test_what_a_page_says_never_reaches_the_terminal_as_a_control_sequence(project: Path) -> None:
    record(project, item("\x1b[31mred\x07", price="a\nb"))
    answer = spyweb("records", "prices", root=project)

    assert "\x1b" not in answer.out
    assert len(answer.lines) == 2


@pytest.mark.parametrize("count", [3, PAGE, PAGE + 3])
def test_a_running_daemon_gives_all_records_of_a_job_that_is_gone(project: Path, count: int) -> None:
    service = FakeDaemonService(found=views(count, JobId("old")))
    with serve_daemon_socket(service, project / "data"):
        answer = spyweb("records", "old", "-n", str(2 * PAGE), "-o", "json", root=project)

    assert shown_titles(answer.json) == [str(number) for number in reversed(range(count))]


def test_a_running_daemon_gives_the_newest_of_all_jobs_in_their_order(project: Path) -> None:
    mixed = [view for pair in zip(views(PAGE, NEWS), views(PAGE), strict=True) for view in pair]
    for n, view in enumerate(mixed):
        mixed[n] = replace(view, timestamp=2 * PAGE - n)
    with serve_daemon_socket(FakeDaemonService(found=mixed), project / "data"):
        answer = spyweb("records", "-n", str(2 * PAGE), "-o", "json", root=project)

    assert [each["timestamp"] for each in answer.json] == [2 * PAGE - n for n in range(2 * PAGE)]


@pytest.mark.parametrize("title", ["a\rb", "a\r", "\r", "a\r\nb", "\n", '"\r"'])
def test_csv_keeps_a_carriage_return_in_its_field(title: str) -> None:
    view = view_record(Record(timestamp_ns=START_MS * 1_000_000, job=PRICES, hash=b"", fields={"title": title}))
    text = to_csv([view])
    _, *rows = csv.reader(io.StringIO(text, newline=""))
    assert [row[1] for row in rows] == [title]
    assert text.startswith("date_time,title,keywords,page_url\n2026-")
    assert text.endswith(",,\n")
