"""/api/channels: they are listed without their secrets, and tried out."""

from __future__ import annotations

import json

import pytest

from tests.fakes.client import Client, post_json


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
