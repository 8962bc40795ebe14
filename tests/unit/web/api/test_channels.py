"""/api/channels: each can be tried out."""

from __future__ import annotations

import pytest

from spyweb.web.app import socket_app
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
