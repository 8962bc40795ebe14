"""The open incidents, kept in mind until one opens or closes."""

from __future__ import annotations

from asyncio import Future

from spyweb.service.open_incidents import OpenIncidents
from spyweb.store.incidents_protocol import OpenIncident
from spyweb.store.sqlite.incidents import SqliteIncidents
from tests.fakes.clock import FakeClock, settle
from tests.fakes.incidents import fail, succeed
from tests.fakes.memory_store import MemoryStore


def make_incidents() -> tuple[SqliteIncidents, OpenIncidents]:
    incidents = MemoryStore(FakeClock()).incidents
    return incidents, OpenIncidents(incidents)


async def test_they_are_read_again_only_after_a_change() -> None:
    incidents, service = make_incidents()
    assert await service.look() == []
    await fail(incidents, "prices")
    await fail(incidents, "backup")
    await settle()
    found = await service.look()
    assert [each.subject for each in found] == ["job:backup", "job:prices"]
    assert await service.look() is found
    await fail(incidents, "prices")  # one more failure opens nothing
    await settle()
    assert await service.look() is found
    await succeed(incidents, "prices")
    await settle()
    assert [each.subject for each in await service.look()] == ["job:backup"]


async def test_that_somebody_takes_care_is_seen_once_it_was_forgotten() -> None:
    incidents, service = make_incidents()
    await fail(incidents, "prices")
    assert [each.acked_by for each in await service.look()] == [""]
    await incidents.acknowledge(1, "anna")
    service.forget()
    assert [each.acked_by for each in await service.look()] == ["anna"]


async def test_what_changes_while_it_is_read_is_not_missed() -> None:
    incidents, service = make_incidents()
    await fail(incidents, "prices")
    asking = incidents.all_open

    def ask(limit: int) -> Future[list[OpenIncident]]:
        found = asking(limit)
        service.forget()
        return found

    incidents.all_open = ask  # type: ignore[method-assign]
    before = await service.look()
    assert await service.look() is not before
