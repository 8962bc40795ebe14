"""Records as rows of CSV."""

from __future__ import annotations

import csv
import io

import pytest

from spyweb.model import JobId
from spyweb.views.record_table import column_names, csv_header, csv_line, csv_row
from spyweb.views.records import RecordView


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
