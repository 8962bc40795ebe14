"""A start that is broken off, and what a person sees of one that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from spyweb import __version__
from spyweb.daemon.serve import NO_JOBS, first_screen, unless_set
from spyweb.errors import Problem, StoreError
from spyweb.views.jobs import JobView, view_job
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


def shown(*jobs: JobView, problems: Sequence[Problem] = ()) -> list[str]:
    facts = {"project": "/srv/watch", "server": "off", "dashboard": ""}
    return list(first_screen(facts, jobs, problems, ZoneInfo("Europe/Berlin")))


def test_a_person_sees_what_was_found_what_is_due_next_and_what_is_wrong() -> None:
    off, nightly, prices = (view_job(make_spec(name)) for name in ("off", "nightly", "prices"))
    jobs = [off, replace(nightly, next_due_ms=START_MS + 10_800_000), replace(prices, next_due_ms=START_MS)]
    assert shown(*jobs, problems=[Problem("jobs/a.lua", 2, "every", "expected a duration")]) == [
        f"spyweb {__version__}",
        "  project    /srv/watch",
        "  server     off",
        "  next       prices, at 2026-01-01 01:00:00 Europe/Berlin",
        "3 jobs: spyweb jobs",
        "problem: jobs/a.lua:2: every: expected a duration",
    ]
    assert shown()[-1] == NO_JOBS
