"""The runs over HTTP, and what comes with a request that starts one."""

from __future__ import annotations

import json

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from spyweb.limits import IDEMPOTENCY_KEY, SCRIPT_VALUES
from spyweb.lua.recording import decode_record
from spyweb.model import JobId, Outcome, Run, RunId, TriggerType
from spyweb.subjects.runs.service import StartedRun
from spyweb.subjects.runs.starting import DEEPEST, REPEATED, key_of, read_payload, started_answer
from spyweb.views.runs import TaskView, event_from_json
from spyweb.web.answer import BadParameter
from spyweb.web.app import socket_app
from tests.fakes.client import Client, client_of, failure, get_json, post_json
from tests.fakes.daemon_service import FAILED_RECORD, MARKUP, FakeDaemonService, a_watched_run, make_run, three_runs
from tests.fakes.keys import Doors


async def test_runs_are_paged_and_chosen_by_job(client: Client) -> None:
    _, every = await get_json(client, "/api/runs")
    _, page = await get_json(client, "/api/runs?limit=1&before=3")
    _, of_backup = await get_json(client, "/api/runs?job=Backup")
    assert msgspec.convert(every, list[Run]) == three_runs()
    assert [run["id"] for run in page] == [2]
    assert [run["job"] for run in of_backup] == ["backup"]


async def test_the_ops_of_a_run_are_listed_and_its_record_is_given_who_asks_for_it() -> None:
    service = FakeDaemonService(known_runs=[make_run(7, outcome=Outcome.FAILED), make_run(6)])
    async with client_of(socket_app(service)) as client:
        _, found = await get_json(client, "/api/runs/7/ops")
        _, whole = await get_json(client, "/api/runs/7/ops?record=1")
        status, _ = await get_json(client, "/api/runs/6/ops")
    assert [(op["number"], op["name"], op["given"], op["answer"], op["status"]) for op in found["ops"]] == [
        (2, "store_get", ["seen"], [None], "ok"),
        (1, "http_get", [MARKUP], [f"no route to {MARKUP}"], "error"),
        (3, "sleep", [1000], None, "unanswered"),
    ]
    assert (found["left_out"], found["record"], status) == (7, None, 404)
    assert decode_record(msgspec.convert(whole["record"], bytes)) == FAILED_RECORD


async def test_a_job_that_is_gone_keeps_its_history() -> None:
    service = FakeDaemonService(known_runs=[make_run(2, job=JobId("gone")), make_run(1, job=JobId("gone"))])
    async with client_of(socket_app(service)) as client:
        _, found = await get_json(client, "/api/runs?job=gone")
        after_the_last = await get_json(client, "/api/runs?job=gone&before=1")
        unknown = await get_json(client, "/api/runs?job=prises")
    assert [run["id"] for run in found] == [2, 1]
    assert after_the_last == (200, [])
    assert unknown == (404, failure("no job is named 'prises': did you mean 'prices'?", "not_found"))


async def test_a_watched_run_is_streamed_line_by_line(client: Client, service: FakeDaemonService) -> None:
    async with client.post("/api/jobs/prices/run") as answer:
        lines = [line async for line in answer.content]
    assert [event_from_json(line) for line in lines] == a_watched_run()
    assert service.story == ["run prices", "closed"]


async def test_the_tasks_of_a_run_are_told_by_its_number() -> None:
    tasks = [TaskView(task="build", workflow="w", status="success", attempts=1, started_at=1.5, took_ms=7)]
    service = FakeDaemonService(tasks={RunId(7): tasks})
    async with client_of(socket_app(service)) as client:
        assert await get_json(client, "/api/runs/7/tasks") == (200, [msgspec.to_builtins(tasks[0])])
        assert await get_json(client, "/api/runs/8/tasks") == (200, [])
        for wrong in ("x", "-1", "9" * 30):
            status, _ = await get_json(client, f"/api/runs/{wrong}/tasks")
            assert status == 400


async def test_a_run_is_cancelled_by_its_number(client: Client, service: FakeDaemonService) -> None:
    assert await post_json(client, "/api/runs/2/cancel") == (200, {"run": 2, "job": "backup"})
    assert await post_json(client, "/api/runs/77/cancel") == (404, failure("there is no run 77", "not_found"))
    assert (await post_json(client, "/api/runs/x/cancel"))[0] == 400
    assert service.story == ["cancel 2", "cancel 77"]


async def test_runs_are_searched_by_how_they_began_and_ended(client: Client, service: FakeDaemonService) -> None:
    async with client.get("/api/runs?outcome=failed,%20success&limit=1&since=5&trigger=manual") as answer:
        assert [run["id"] for run in await answer.json()] == [2]
        assert 'before=1>; rel="next"' in answer.headers["Link"]
    for query, field in (("outcome=good", "outcome"), ("trigger=x", "trigger"), ("since=x", "since")):
        status, told = await get_json(client, f"/api/runs?{query}")
        assert (status, told["field"]) == (400, field)
    (asked,) = service.past.searched
    assert (asked.since_ms, asked.triggers) == (5, [TriggerType.MANUAL])


async def test_a_run_is_shown_with_everything_about_it(client: Client) -> None:
    status, detail = await get_json(client, "/api/runs/2")
    assert (status, detail["run"]["job"], detail["words"]) == (200, "backup", "Failed")
    assert (await get_json(client, "/api/runs/99"))[0] == 404


async def test_a_key_of_some_jobs_sees_no_runs_of_others_beside_its_own(doors: Doors) -> None:
    detail = await doors.json("/api/runs/1", "limited")
    assert {each["job"] for each in detail["followers"]} == {"prices"}
    assert [each["words"] for each in detail["causes"] if each["run"] is None] == ["a run of another job"]
    assert {each["run"]["job"] for each in detail["causes"] if each["run"]} <= {"prices"}
    assert await doors.status("GET", "/api/runs/2", "limited") == 403


async def test_gaps_come_a_page_at_a_time(client: Client) -> None:
    async with client.get("/api/gaps?job=prices&limit=1") as answer:
        page = await answer.json()
        assert (page["count"], page["gaps"][0]["reason"]) == (6, MARKUP)
        assert answer.headers["Link"] == '<?job=prices&limit=1&before=3>; rel="next"'


async def test_a_job_is_debugged_by_an_address_of_its_own(client: Client, service: FakeDaemonService) -> None:
    async with client.post("/api/jobs/prices/debug") as answer:
        assert (answer.status, answer.content_type) == (200, "application/x-ndjson")
        lines = (await answer.text()).splitlines()
    assert json.loads(lines[-1])["event"] == "ended"
    assert service.story == ["debug prices", "closed"]


async def test_a_workflow_that_is_not_there_is_not_found(client: Client) -> None:
    status, told = await get_json(client, "/api/workflow?id=nothing")
    assert (status, told["code"]) == (404, "not_found")


def asked(key: str | None) -> str | None:
    headers = {} if key is None else {"idempotency-key": key}
    return key_of(make_mocked_request("POST", "/", headers=headers))


def test_a_key_is_any_printable_text() -> None:
    assert asked(None) is None
    assert asked("8d3f-…") == "8d3f-…"
    assert asked("k" * IDEMPOTENCY_KEY) is not None


@pytest.mark.parametrize("key", ["", " ", "a\x01b", "k" * (IDEMPOTENCY_KEY + 1)])
def test_a_key_that_can_not_be_is_refused(key: str) -> None:
    with pytest.raises(BadParameter):
        asked(key)


def test_an_answer_says_when_it_is_a_repetition() -> None:
    assert REPEATED not in started_answer(StartedRun(run=RunId(1)), 202).headers
    assert started_answer(StartedRun(run=RunId(1), is_repeated=True), 202).headers[REPEATED] == "true"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"", None),
        (b"null", None),
        (b'{"a": [1, true, "x", null]}', {"a": [1, True, "x", None]}),
        (b"[99999999999999999999, 18446744073709551615]", [1e20, 1.8446744073709552e19]),
        (b"[" * DEEPEST + b"]" * DEEPEST, ...),
    ],
)
def test_any_json_is_read_as_lua_can_hold_it(content: bytes, value: object) -> None:
    found = read_payload(content)
    assert value is ... or found == value


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b"1e400", b"[" * 61 + b"]" * 61, b"[" * 60_000, b"9" * 5000, b'{"a": ']
)
def test_what_is_no_json_or_too_deep_is_refused(content: bytes) -> None:
    with pytest.raises(web.HTTPBadRequest):
        read_payload(content)


async def test_a_trigger_takes_a_payload_with_it_and_a_wrong_one_starts_nothing(
    client: Client, service: FakeDaemonService
) -> None:
    async with client.post("/api/jobs/prices/trigger", data=b'{"branch": "main"}') as answer:
        assert (answer.status, await answer.json()) == (200, {"run": 9})
    async with client.post("/api/jobs/prices/trigger", data=b"{") as answer:
        assert answer.status == 400
    async with client.post("/api/jobs/prices/trigger", data=b" " * (SCRIPT_VALUES + 1)) as answer:
        assert (answer.status, await answer.json()) == (413, failure("a payload may be 64 KB", "too_large"))
    async with client.post("/api/jobs/prices/run", data=b"[1]") as answer:
        assert (answer.status, await answer.json()) == (422, failure("expected an object of values", "invalid"))
    assert service.story == ["trigger prices with {'branch': 'main'}"]
