"""GET /api/records, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from spyweb.store.model.records import Record
from spyweb.subjects.records.views import RecordView, view_record
from spyweb.web.app import tcp_app
from tests.fakes.client import Client, client_of, get_json
from tests.fakes.daemon_service import BACKUP, NOW_MS, PRICES, FakeDaemonService
from tests.fakes.keys import Doors


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
