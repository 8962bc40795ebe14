"""A record as JSON: the same for the API, the command line and a script's SQL."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from spyweb.store.model.records import Record
from spyweb.store.sqlite.store import open_store
from spyweb.store.user_sql.views import RECORDS_VIEW
from spyweb.views.jobs import to_json
from spyweb.views.records import RecordView, by_job, flatten, view_record
from tests.fakes.changes import NEWS, PRICES
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


def test_records_are_grouped_by_job_in_their_order() -> None:
    views = [view_record(record) for record in (TEA, Record(timestamp_ns=1, job=NEWS, hash=b""), TEA)]

    grouped = by_job(views)
    assert list(grouped) == ["prices", "news"]
    assert [len(each) for each in grouped.values()] == [2, 1]


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
