"""/api/maintenance: what it is now, and what comes next."""

from __future__ import annotations

from typing import cast

import pytest

from spyweb.store.model.access import Scope
from spyweb.web.app import socket_app, tcp_app
from tests.fakes.client import client_of, get_json
from tests.fakes.daemon_service import FakeDaemonService


@pytest.mark.parametrize(("query", "nights"), [("", 7), ("?days=2", 2)])
async def test_windows_of_the_next_days_are_shown(query: str, nights: int) -> None:
    async with client_of(socket_app(FakeDaemonService())) as client:
        status, answer = await get_json(client, f"/api/maintenance{query}")
        found = cast(dict[str, list[dict[str, object]]], answer)
        assert (status, [each["text"] for each in found["now"]], len(found["next"])) == (200, ["reboot"], nights)


@pytest.mark.parametrize("days", ["0", "367", "x"])
async def test_it_is_a_day_to_a_year(days: str) -> None:
    async with client_of(socket_app(FakeDaemonService())) as client:
        assert (await get_json(client, f"/api/maintenance?days={days}"))[0] == 400


async def test_a_key_for_some_jobs_sees_what_is_about_these() -> None:
    service = FakeDaemonService()
    made = await service.access.add("reads", [Scope.READ], ["backup"])
    async with client_of(tcp_app(service)) as client:
        answer = await client.get("/api/maintenance", headers={"Authorization": f"Bearer {made.token}"})
        found = await answer.json()
        assert (len(found["now"]), found["now"][0]["job_count"], found["next"]) == (1, 1, [])
