"""/api/maintenance: what it is now, and what comes next."""

from __future__ import annotations

import pytest

from tests.fakes.client import Client, get_json
from tests.fakes.keys import Doors


@pytest.mark.parametrize(("query", "nights"), [("", 7), ("?days=2", 2)])
async def test_windows_of_the_next_days_are_shown(query: str, nights: int, client: Client) -> None:
    status, answer = await get_json(client, f"/api/maintenance{query}")
    found = answer
    assert (status, [each["text"] for each in found["now"]], len(found["next"])) == (200, ["reboot"], nights)


@pytest.mark.parametrize("days", ["0", "367", "x"])
async def test_it_is_a_day_to_a_year(days: str, client: Client) -> None:
    assert (await get_json(client, f"/api/maintenance?days={days}"))[0] == 400


async def test_a_key_for_some_jobs_sees_what_is_about_these(doors: Doors) -> None:
    async with doors.client.get("/api/maintenance", headers={"X-SpyWeb-Key": doors.tokens["other"]}) as answer:
        found = await answer.json()
    assert (len(found["now"]), found["now"][0]["job_count"], found["next"]) == (1, 1, [])
