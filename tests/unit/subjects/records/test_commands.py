"""`spyweb records`: against a database, and against a daemon's socket."""

from __future__ import annotations

import asyncio
import csv
import io
from pathlib import Path
from typing import Any

import pytest

from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.store.model.records import NewRecord, Record
from spyweb.store.sqlite.store import open_store
from spyweb.subjects.records.commands import PAGE, moment_of, to_csv
from spyweb.subjects.records.views import RecordView, view_record
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import PRICES, FakeDaemonService
from tests.fakes.daemon_socket import serve_daemon_socket
from tests.fakes.findings import item

HOUR_MS = 3_600_000


def record(root: Path, *items: NewRecord, job: JobId = PRICES, clock: FakeClock | None = None) -> None:
    async def add() -> None:
        store = await open_store(root / "data" / "spyweb.db", clock=clock or FakeClock())
        await store.records.add(job, items)
        await store.close()

    asyncio.run(add())


def titles(answer: Any) -> list[str]:
    return [each["title"] for each in answer]


def views(count: int, job: JobId = PRICES) -> list[RecordView]:
    return [
        view_record(Record(timestamp_ns=START_MS * 1_000_000 + n, job=job, hash=b"", fields={"title": str(n)}))
        for n in reversed(range(count))
    ]


def test_records_are_a_table_newest_first_with_a_column_for_each_field(project: Path) -> None:
    record(project, item("Tea", price="1 €", matches=["sale", "tea"]), item("Cup", size="L"))
    answer = spyweb("records", "Prices", root=project)

    assert answer.code == 0
    assert answer.lines[0].split() == ["found", "title", "size", "price", "keywords"]
    assert answer.table == [
        ["Thu 2026-01-01 00:00:00 UTC", "Cup", "L"],
        ["Thu 2026-01-01 00:00:00 UTC", "Tea", "1 €", "sale, tea"],
    ]


def test_csv_keeps_commas_quotes_and_line_breaks(project: Path) -> None:
    record(project, item('a "b", c\nd', matches=["x", "y"]), item("plain", price="2"))
    answer = spyweb("records", "prices", "-o", "csv", root=project)
    header, *rows = csv.reader(io.StringIO(answer.out))

    moment, page = "2026-01-01T00:00:00.000Z", "https://shop.example/"
    assert header == ["date_time", "title", "price", "keywords", "page_url"]
    assert rows == [[moment, "plain", "2", "", page], [moment, 'a "b", c\nd', "", "x y", page]]


def test_the_newest_are_shown_and_how_many_may_be_said(project: Path) -> None:
    record(project, *(item(str(number)) for number in range(30)))

    assert len(titles(spyweb("records", "prices", "-o", "json", root=project).json)) == 20
    assert titles(spyweb("records", "prices", "-n", "2", "-o", "json", root=project).json) == ["29", "28"]


def test_since_leaves_out_what_is_older(project: Path) -> None:
    clock = FakeClock()
    for title in ("first", "second", "third"):
        record(project, item(title), clock=clock)
        clock.advance(3600)
    since = ("--since", "2026-01-01T01:00")

    assert titles(spyweb("records", "prices", *since, "-o", "json", root=project).json) == ["third", "second"]
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

    assert titles(spyweb("records", "old", "-o", "json", root=project).json) == ["Tea"]
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

    assert titles(answer.json) == [str(number) for number in reversed(range(count))]


@pytest.mark.parametrize("title", ["a\rb", "a\r", "\r", "a\r\nb", "\n", '"\r"'])
def test_csv_keeps_a_carriage_return_in_its_field(title: str) -> None:
    view = view_record(Record(timestamp_ns=START_MS * 1_000_000, job=PRICES, hash=b"", fields={"title": title}))
    text = to_csv([view])
    _, *rows = csv.reader(io.StringIO(text, newline=""))
    assert [row[1] for row in rows] == [title]
    assert text.startswith("date_time,title,keywords,page_url\n2026-")
    assert text.endswith(",,\n")
