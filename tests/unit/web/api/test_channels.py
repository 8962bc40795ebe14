"""/api/channels: they are listed without their secrets, and tried out."""

from __future__ import annotations

import json

import pytest

from spyweb.store.model.access import Scope
from spyweb.web.app import socket_app, tcp_app
from tests.fakes.client import client_of, post_json
from tests.fakes.daemon_service import FakeDaemonService


@pytest.mark.parametrize(
    ("channel", "status", "part"),
    [
        ("ops", 200, {"is_sent": True}),
        ("phone", 200, {"is_sent": False, "reason": "answered 401"}),
        ("nope", 404, {}),
    ],
)
async def test_a_channel_is_tried_out(channel: str, status: int, part: dict[str, object]) -> None:
    async with client_of(socket_app(FakeDaemonService())) as client:
        found, answer = await post_json(client, f"/api/channels/{channel}/test")
    assert found == status
    assert isinstance(answer, dict)
    assert part.items() <= answer.items()


async def test_channels_are_listed_and_nothing_secret_of_their_addresses() -> None:
    async with client_of(socket_app(FakeDaemonService())) as client:
        answer = await client.get("/api/channels")
        text = await answer.text()
    assert [(each["name"], each["kind"], each["service"], each["host"]) for each in json.loads(text)] == [
        ("ops", "webhook", "", "example.org"),
        ("phone", "service", "ntfy", ""),
    ]
    assert "s3cret" not in text
    assert "T0KEN" not in text


async def test_a_key_that_reads_sees_them_and_one_for_some_jobs_does_not() -> None:
    service = FakeDaemonService()
    reads = await service.access.add("reads", [Scope.READ], [])
    some = await service.access.add("some", [Scope.READ, Scope.RUN], ["backup"])
    async with client_of(tcp_app(service)) as client:
        for made, listed, tried in ((reads, 200, 403), (some, 403, 403)):
            headers = {"Authorization": f"Bearer {made.token}"}
            assert (await client.get("/api/channels", headers=headers)).status == listed
            assert (await client.post("/api/channels/ops/test", headers=headers)).status == tried
