"""A record as JSON, the same for the API, the command line and a script's SQL; and records as rows of CSV."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from spyweb.model import JobId
from spyweb.store.model.records import Record
from spyweb.store.sqlite.store import open_store
from spyweb.store.user_sql.views import RECORDS_VIEW
from spyweb.subjects.records.views import RecordView, column_names, csv_header, csv_line, csv_row, flatten, view_record
from spyweb.views.jobs import to_json
from tests.fakes.changes import PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.findings import item

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

    with closing(sqlite3.connect(tmp_path / "spyweb.db")) as connection:
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

    lines = csv_header(names) + csv_row(names, view(price='a "b"\r\nc', late="x"))
    header, row = csv.reader(io.StringIO(lines, newline=""))
    assert header == ["date_time", "job", "title", "price", "size", "keywords", "page_url", "other_fields"]
    assert row == [
        "2026-01-01T00:00:00.000Z", "prices", "", 'a "b"\r\nc', "", "tea cup", "https://a.example/", '{"late":"x"}',
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


def test_the_names_of_columns_are_no_formulas_either() -> None:
    assert "'=x" in csv_header(["=x"], for_spreadsheet=True)
