"""A start that is broken off, and what a person sees of one that is not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.daemon.serve import NO_JOBS, first_screen, more_facts, unless_set
from spyweb.errors import Problem, StoreError
from spyweb.model import JobId
from spyweb.settings.load import load_settings
from spyweb.views.jobs import broken_job, view_job
from tests.fakes.clock import START_MS
from tests.fakes.harness import make_spec


async def test_a_start_comes_to_its_end_unless_a_stop_is_asked_for() -> None:
    stop, story, is_held = asyncio.Event(), [], asyncio.Event()

    async def load() -> None:
        story.append("began")
        try:
            await is_held.wait()
            story.append("ended")
        except asyncio.CancelledError:
            story.append("broken off")
            raise

    asyncio.get_running_loop().call_soon(stop.set)
    assert not await unless_set(stop, load())
    is_held.set()
    assert await unless_set(asyncio.Event(), load())
    assert story == ["began", "broken off", "began", "ended"]


async def test_a_start_that_fails_tells_its_error_as_it_is() -> None:
    async def load() -> None:
        raise StoreError("no room")

    with pytest.raises(StoreError, match="no room"):
        await unless_set(asyncio.Event(), load())


def test_a_person_sees_the_address_the_jobs_the_data_and_how_to_stop(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={"TZ": "Europe/Berlin"}, flags={})
    off, nightly, prices = (view_job(make_spec(name)) for name in ("off", "nightly", "prices"))
    typo = broken_job(JobId("typo"), [Problem("jobs/typo.lua", 2, "every", "expected a duration")])
    jobs = [off, replace(nightly, next_due_ms=START_MS + 10_800_000), replace(prices, next_due_ms=START_MS)]
    stop = "Ctrl-C, or `spyweb stop`"
    found, data = f"{tmp_path / 'jobs'}", f"{tmp_path / 'data'}"
    assert first_screen(settings, jobs, "http://127.0.0.1:7979") == {
        "dashboard": "http://127.0.0.1:7979", "jobs": f"3 in {found}", "data": data, "stop": stop
    }  # fmt: skip
    assert first_screen(settings, [*jobs, typo], None)["jobs"] == f"4 in {found}, 1 broken: `spyweb check` says why"
    assert first_screen(settings, [], None) == {"dashboard": "off", "jobs": NO_JOBS, "data": data, "stop": stop}
    assert more_facts(settings, jobs, None)["next run"] == "prices, Thu 2026-01-01 01:00:00 CET"
    assert more_facts(settings, [off], None)["next run"] == "none"
