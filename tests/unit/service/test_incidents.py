"""Incidents as clients are told of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.service.incidents import IncidentService
from spyweb.store.incidents_protocol import Incidents
from spyweb.views.incidents import SignView
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.incidents import AT_MS, KNOWN, fail, succeed
from tests.fakes.memory_store import MemoryStore


@pytest.fixture
async def incidents() -> Incidents:
    """One of prices, which is over, and one of backup, which is open."""
    found = MemoryStore(FakeClock()).incidents
    await fail(found, "prices")
    await succeed(found, "prices")
    await fail(found, "backup", "no route")
    return found


async def test_they_are_listed_newest_first_of_all_of_a_job_or_of_a_state(incidents: Incidents) -> None:
    service = IncidentService(incidents, FakeClock())
    for is_open, job, before, expected in (
        (None, None, None, [2, 1]),
        (True, None, None, [2]),
        (False, None, None, [1]),
        (None, JobId("prices"), None, [1]),
        (None, None, 2, [1]),
    ):
        found = await service.list(is_open=is_open, job=job, before=before, limit=10)
        assert [each.id for each in found] == expected


async def test_one_is_shown_with_all_that_is_known(incidents: Incidents) -> None:
    assert await IncidentService(incidents, FakeClock()).get(2) == replace(
        KNOWN,
        id=2,
        subject="job:backup",
        job_id=JobId("backup"),
        text="no route",
        run=(await incidents.list())[0].run,
        since_ms=AT_MS,
        opened_ms=AT_MS,
        signs={"failing": SignView(since_ms=AT_MS, text="no route")},
    )


async def test_whoever_takes_care_is_noted_and_the_planner_looks_again(incidents: Incidents) -> None:
    woken: list[bool] = []
    service = IncidentService(incidents, FakeClock(), lambda: woken.append(True))
    await service.acknowledge(2, "me")
    found = await service.get(2)
    assert (found.acked_by, found.acked_ms, [note.text for note in found.notes]) == (
        "me",
        START_MS,
        ["acknowledged by me"],
    )
    assert woken == [True]


@pytest.mark.parametrize(("number", "reason"), [(1, "incident 1 is over"), (9, "there is no incident 9")])
async def test_of_what_is_over_or_was_never_there_nobody_takes_care(
    incidents: Incidents, number: int, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        await IncidentService(incidents, FakeClock()).acknowledge(number, "me")


async def test_what_is_over_has_no_signs_and_silence_is_said_while_it_lasts(incidents: Incidents) -> None:
    clock = FakeClock()
    service = IncidentService(incidents, clock)
    over = await service.get(1)
    assert (over.signs, over.failures) == ({}, 0)
    await service.silence(JobId("backup"), 60_000, "me")
    silent = await service.get(2)
    assert (silent.silent_until_ms, silent.silent_by) == (START_MS + 60_000, "me")
    clock.advance(60)
    loud = await service.get(2)
    assert (loud.silent_until_ms, loud.silent_by) == (None, "")
