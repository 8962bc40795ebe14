"""/api/incidents: what is wrong, and who has acknowledged it; /api/channels."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from spyweb.store.model.access import Scope
from spyweb.web.app import tcp_app
from tests.fakes.client import Client, client_of, get_json, post_json
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.incidents import fail, succeed


@pytest.fixture
async def service() -> FakeDaemonService:
    """One of backup, which is over, and one of prices, which is open."""
    service = FakeDaemonService()
    await fail(service.stored_incidents, "backup")
    await succeed(service.stored_incidents, "backup")
    await fail(service.stored_incidents, "prices")
    return service


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", [2, 1]),
        ("?state=open", [2]),
        ("?state=closed", [1]),
        ("?job=Backup", [1]),
        ("?job=gone", []),
        ("?limit=1", [2]),
        ("?before=2", [1]),
        ("?since=99999999999999", [2]),
    ],
)
async def test_incidents_are_listed(client: Client, query: str, ids: list[int]) -> None:
    _, answer = await get_json(client, f"/api/incidents{query}")
    assert [each["id"] for each in answer] == ids


@pytest.mark.parametrize(("path", "status"), [("9", 404), ("x", 400), ("9" * 30, 400)])
async def test_what_is_no_incident_is_said(client: Client, path: str, status: int) -> None:
    assert (await get_json(client, f"/api/incidents/{path}"))[0] == status
    assert (await post_json(client, f"/api/incidents/{path}/ack"))[0] == status


async def test_somebody_takes_care(client: Client) -> None:
    assert await post_json(client, "/api/incidents/2/ack?by=me") == (200, {"acked": 2, "by": "me"})
    _, answer = await get_json(client, "/api/incidents/2")
    assert answer["acked_by"] == "me"
    assert (await post_json(client, "/api/incidents/1/ack"))[0] == 409, "it is over"
    statuses = [(await client.delete(f"/api/incidents/{number}/ack?by=me")).status for number in (2, 2, 1, 9)]
    assert statuses == [200, 409, 409, 404]
    assert (await get_json(client, "/api/incidents/2"))[1]["acked_by"] == ""


@pytest.mark.parametrize(("given", "shown"), [("a\u202eb\x1bc", "a?b?c"), (" a \n b ", "a b"), ("x" * 100, "x" * 100)])
async def test_a_name_is_legible(client: Client, given: str, shown: str) -> None:
    await post_json(client, f"/api/incidents/2/ack?by={quote(given)}")
    _, answer = await get_json(client, "/api/incidents/2")
    assert answer["acked_by"] == shown


async def silence(client: Client, job: str, how_long: str) -> tuple[int, object]:
    async with client.post(f"/api/jobs/{job}/silence?by=me", json={"for": how_long}) as answer:
        return answer.status, await answer.json()


async def test_a_job_is_silent_for_a_while(client: Client) -> None:
    assert await silence(client, "prices", "2h") == (200, {"job": "prices", "for_ms": 7_200_000})
    answer = await client.delete("/api/jobs/prices/silence")
    assert (answer.status, await answer.json()) == (200, {"job": "prices", "for_ms": 0})
    _, shown = await get_json(client, "/api/incidents/2")
    assert [each["text"] for each in shown["notes"]] == ["silenced by me", "unsilenced by local"]


async def note(client: Client, incident: int, text: str, *, public: bool = False) -> tuple[int, object]:
    body = {"text": text, "public": public}
    async with client.post(f"/api/incidents/{incident}/notes?by=me", json=body) as answer:
        return answer.status, await answer.json()


async def test_people_write_what_others_shall_read_also_when_it_is_over(client: Client) -> None:
    assert (await note(client, 1, " The disk\r\nwas\x1b full ", public=True))[0] == 200
    assert (await note(client, 2, "ask Ann"))[0] == 200
    notes = [(await get_json(client, f"/api/incidents/{number}"))[1]["notes"][-1] for number in (1, 2)]
    assert [(each["text"], each["by"], each["is_public"]) for each in notes] == [
        ("The disk\nwas  full", "me", True),
        ("ask Ann", "me", False),
    ]
    for text in ("", " \n ", "x" * 1_001):
        assert (await note(client, 1, text))[0] == 409
    assert (await note(client, 9, "x"))[0] == 404


async def test_a_note_is_not_taken_for_the_reason_of_an_end(service: FakeDaemonService, client: Client) -> None:
    await note(client, 1, "removed or disabled")
    assert not (await service.incidents.get(1)).is_gone


@pytest.mark.parametrize("how_long", ["2s", "soon", "1000d", ""])
async def test_how_long_is_a_time_of_a_minute_to_a_year(client: Client, how_long: str) -> None:
    assert (await silence(client, "prices", how_long))[0] in (400, 422)
    assert (await silence(client, "nobody", "2h"))[0] == 404


async def test_a_key_for_some_jobs_sees_theirs_alone_and_a_key_that_reads_takes_no_care(
    service: FakeDaemonService,
) -> None:
    reads = await service.access.add("reads", [Scope.READ], ["backup"])
    runs = await service.access.add("runs", [Scope.RUN], ["prices"])
    async with client_of(tcp_app(service)) as client:
        for made, ids, seen, acked in ((reads, [1], 403, 403), (runs, [2], 200, 200)):
            headers = {"Authorization": f"Bearer {made.token}"}
            answer = await (await client.get("/api/incidents", headers=headers)).json()
            assert [each["id"] for each in answer] == ids
            assert (await client.get("/api/incidents/2", headers=headers)).status == seen
            assert (await client.post("/api/incidents/2/ack?by=boss", headers=headers)).status == acked
            assert (await client.get("/api/incidents/9", headers=headers)).status == 403
    (note,) = (await service.incidents.get(2)).notes
    assert note.text == "acknowledged by runs"


@pytest.mark.parametrize(
    ("channel", "status", "part"),
    [
        ("ops", 200, {"is_sent": True}),
        ("phone", 200, {"is_sent": False, "reason": "answered 401"}),
        ("mail", 200, {"is_sent": True, "reason": "its template fails, the built-in text was sent: title: no"}),
        ("nope", 404, {}),
    ],
)
async def test_a_channel_is_tried_out(channel: str, status: int, part: dict[str, object], client: Client) -> None:
    found, answer = await post_json(client, f"/api/channels/{channel}/test")
    assert found == status
    assert part.items() <= answer.items()


async def test_channels_are_listed_and_nothing_secret_of_their_addresses(client: Client) -> None:
    answer = await client.get("/api/channels")
    text = await answer.text()
    assert [(each["name"], each["kind"], each["service"], each["host"]) for each in json.loads(text)] == [
        ("ops", "webhook", "", "example.org"),
        ("phone", "service", "ntfy", ""),
    ]
    assert "s3cret" not in text
    assert "T0KEN" not in text
