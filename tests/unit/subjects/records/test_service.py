"""Records: looked for in a store, as JSON and CSV, and page by page over HTTP."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spyweb.model import Field, JobId, Monitor
from spyweb.runs.live import LiveJobs
from spyweb.store.model.records import NewRecord, Record, RecordFilter, RecordPage
from spyweb.store.sqlite.store import open_store
from spyweb.store.user_sql.views import ENGINE, RECORDS_VIEW
from spyweb.subjects.records import service as record_search
from spyweb.subjects.records.service import RecordSearch
from spyweb.subjects.records.views import RecordView, column_names, csv_header, csv_line, csv_row, flatten, view_record
from spyweb.views.jobs import to_json
from spyweb.web.app import tcp_app
from tests.fakes.changes import PRICES
from tests.fakes.client import Client, client_of, get_json
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import BACKUP, NOW_MS, FakeDaemonService
from tests.fakes.findings import item
from tests.fakes.harness import make_job
from tests.fakes.keys import Doors
from tests.fakes.memory_store import MemoryStore


async def known(*titles: str) -> RecordSearch:
    clock = FakeClock()
    store, live = MemoryStore(clock), LiveJobs()
    fields = (Field(name="title", selector="a"), Field(name="price", selector="b"))
    live.add(make_job("prices", monitor=Monitor(urls=("https://a.example",), selector="li", fields=fields)))
    for title in titles:
        await store.records.add(PRICES, [NewRecord(hash=title.encode(), fields={"title": title})])
    return RecordSearch(records=store.records, live=live, clock=clock)


async def test_records_are_found_and_counted() -> None:
    service = await known("tea", "cup", "teapot")
    found = await service.search(RecordFilter(text="TEA"), limit=9)
    assert ([view.fields["title"] for view in found.records], found.before_ns) == (["teapot", "tea"], None)
    assert await service.counts() == {PRICES: 3}


async def test_a_table_has_all_pages_and_the_columns_that_the_job_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_search, "PAGE", 2)
    service = await known("a", "b", "c", "=d", "e")

    lines = "".join([line async for line in service.table(RecordFilter(job=PRICES), for_spreadsheet=True)]).splitlines()
    assert lines[0] == "date_time,job,title,price,keywords,page_url,other_fields,old"
    assert [line.split(",")[2] for line in lines[1:]] == ["e", "'=d", "c", "b", "a"]


async def test_a_table_of_nothing_is_its_header() -> None:
    lines = [line async for line in (await known()).table(RecordFilter(text="x"))]
    assert lines == ["date_time,job,keywords,page_url,other_fields,old\r\n"]


async def test_a_search_that_takes_long_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    service = await known()

    async def slowly(wanted: RecordFilter, *, limit: int, before_ns: int | None = None) -> RecordPage:
        assert isinstance(service.clock, FakeClock)
        service.clock.advance(0.15)
        return RecordPage(records=(), before_ns=(before_ns or 9) - 1)

    monkeypatch.setattr(service.records, "search", slowly)
    assert (await service.search(RecordFilter(text="x"), limit=9)).before_ns == 7


TEA = Record(
    timestamp_ns=1_767_225_600_123_456_000,
    job=PRICES,
    hash=b"\0\xff",
    fields={"title": "Tea", "hash": "its own", "url": "/tea"},
    matches=("sale",),
    url="https://shop.example/",
)


def test_each_field_is_at_top_level_and_what_spyweb_knows_wins() -> None:
    assert flatten(view_record(TEA)) == {
        "title": "Tea",
        "url": "/tea",
        "fields": {"title": "Tea", "hash": "its own", "url": "/tea"},
        "match_key": ("sale",),
        "page_url": "https://shop.example/",
        "job_id": "prices",
        "date_time": "2026-01-01T00:00:00.123Z",
        "timestamp": 1_767_225_600_123_456_000,
        "hash": "00ff",
        "old": {},
    }


def test_the_command_line_reads_back_what_the_api_writes() -> None:
    view = view_record(TEA)
    assert msgspec.json.decode(to_json(flatten(view)), type=RecordView) == view


async def test_sql_shows_scripts_the_very_same(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path / "spyweb.db", clock=clock)
    for number in range(100):
        clock.advance(0.037)
        await store.records.add(PRICES, [item(f"ä {number}", matches=["a", "b"], fields="x", page_url="y")])
    found = [json.loads(to_json(flatten(view_record(record)))) for record in await store.records.list(limit=100)]
    await store.close()

    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"ATTACH ? AS {ENGINE}", (str(tmp_path / "spyweb.db"),))
        rows = connection.execute(f"SELECT json FROM ({RECORDS_VIEW})").fetchall()
    assert [json.loads(text) for (text,) in rows] == found


def view(**fields: str) -> RecordView:
    return RecordView(
        fields=fields,
        match_key=("tea", "cup"),
        page_url="https://a.example/",
        job_id=JobId("prices"),
        date_time="2026-01-01T00:00:00.000Z",
        timestamp=1,
        hash="00",
    )


def test_a_row_has_a_cell_for_each_column_and_what_is_left_as_json() -> None:
    names = column_names(["title", "price"], [view(price="3", size="L")])
    assert names == ["title", "price", "size"]
    assert "'=x" in csv_header(["=x"], for_spreadsheet=True), "no formula either"

    lines = csv_header(names) + csv_row(names, view(price='a "b"\r\nc', late="x"))
    header, row = csv.reader(io.StringIO(lines, newline=""))
    assert header == ["date_time", "job", "title", "price", "size", "keywords", "page_url", "other_fields", "old"]
    assert row == [
        "2026-01-01T00:00:00.000Z", "prices", "", 'a "b"\r\nc', "", "tea cup", "https://a.example/", '{"late":"x"}', "",
    ]  # fmt: skip


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-cmd|'/c calc'!A0", "@sum(a1)", "\t=1", "-1+2", "--5", "+"])
def test_what_a_spreadsheet_would_take_for_a_formula_is_text_there(cell: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_line([cell], for_spreadsheet=True), newline=""))
    assert row == [f"'{cell}"]
    (exact,) = csv.reader(io.StringIO(csv_line([cell]), newline=""))
    assert exact == [cell]


@pytest.mark.parametrize("cell", ["-5", "+3.20", "-1.234,50", "-1e9", "-12%", "2026", "a=b", "tea", ""])
def test_numbers_and_other_texts_are_as_they_are(cell: str) -> None:
    assert csv_line([cell, "x"], for_spreadsheet=True) == csv_line([cell, "x"])


def found(count: int = 5) -> list[RecordView]:
    """Newest first; every third is of `backup`, the others of `prices`."""
    return [
        view_record(
            Record(
                timestamp_ns=NOW_MS * 1_000_000 + number * 1_000,
                job=PRICES if number % 3 else BACKUP,
                hash=b"h",
                fields={"title": str(number)},
            )
        )
        for number in reversed(range(count))
    ]


async def ask(client: Client, query: str = "") -> Any:
    status, answer = await get_json(client, f"/api/records{query}")
    assert status == 200
    return answer


def titles(records: Any) -> list[str]:
    return [record["title"] for record in records]


async def test_a_jobs_records_come_newest_first_by_its_name_or_id() -> None:
    async with client_of(tcp_app(FakeDaemonService(found=found()))) as client:
        for name in ("backup", "Backup"):
            answer = await ask(client, f"?job_id={name}")
            assert titles(answer.pop("records")) == ["3", "0"]
            assert answer == {"limit": 30, "has_more": False, "next_after": None}


async def test_pages_follow_each_other_by_next_after() -> None:
    seen, after = [], ""
    async with client_of(tcp_app(FakeDaemonService(found=found(8)))) as client:
        while True:
            answer = await ask(client, f"?job_id=prices&limit=2{after}")
            seen.append(titles(answer["records"]))
            if not answer["has_more"]:
                break
            after = f"&after={answer['next_after']}"

    assert seen == [["7", "5"], ["4", "2"], ["1"]]
    assert answer["next_after"] is None


async def test_without_a_job_the_newest_of_all_come_by_job() -> None:
    async with client_of(tcp_app(FakeDaemonService(found=found()))) as client:
        for query in ("", "?job_id=&limit=&after="):
            answer = await ask(client, query)
            assert {job: titles(records) for job, records in answer.items()} == {
                "prices": ["4", "2", "1"],
                "backup": ["3", "0"],
            }
        assert list(await ask(client, "?limit=1")) == ["prices"]


async def test_without_records_there_is_an_empty_page(client: Client) -> None:
    assert await ask(client) == {}
    assert (await ask(client, "?job_id=prices"))["records"] == []


@pytest.mark.parametrize(("asked", "told"), [("", 30), ("&limit=7", 7), ("&limit=1000", 1000), ("&limit=99999", 1000)])
async def test_the_answer_says_which_limit_was_used(asked: str, told: int) -> None:
    async with client_of(tcp_app(FakeDaemonService(found=found(1100)))) as client:
        answer = await ask(client, f"?job_id=prices{asked}")

    assert answer["limit"] == told
    assert len(titles(answer["records"])) == min(told, 733)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=-1", "limit=x", "limit=1e3", "limit=²", "limit=" + "9" * 5000, "after=-1", "after=now"]
)
async def test_what_is_no_number_is_refused(query: str) -> None:
    async with client_of(tcp_app(FakeDaemonService(found=found()))) as client:
        status, answer = await get_json(client, f"/api/records?{query}")

    assert status == 400
    assert "expected a whole number from" in answer["error"]


async def test_an_unknown_job_is_told_with_the_nearest_name_but_one_that_is_gone_has_its_records() -> None:
    gone = Record(timestamp_ns=1, job=type(PRICES)("old"), hash=b"", fields={"title": "x"})
    async with client_of(tcp_app(FakeDaemonService(found=[view_record(gone)]))) as client:
        status, answer = await get_json(client, "/api/records?job_id=prizes")
        assert (status, "prices" in answer["error"]) == (404, True)
        assert titles((await ask(client, "?job_id=old"))["records"]) == ["x"]
        assert (await ask(client, "?job_id=old&after=1"))["records"] == []


async def test_a_key_of_some_jobs_may_search_and_export_these_alone(doors: Doors) -> None:
    for path in ("/api/records?q=x", "/api/records?q=x&job_id=backup", "/api/records.csv"):
        assert await doors.status("GET", path, "limited") == 403
