"""Each part proves that it makes progress, at most once a second."""

from __future__ import annotations

import asyncio
from asyncio import Future

from spyweb.errors import StoreError
from spyweb.subjects.health.service import STOPPING, ReadinessService
from spyweb.web.api.services import STARTING
from tests.fakes.clock import FakeClock, settle
from tests.fakes.daemon_service import make_readiness, make_vitals
from tests.fakes.memory_store import MemoryStore


class ProbedStore(MemoryStore):
    """Answers its probes when the test says so."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.probes: list[Future[None]] = []

    def probe(self) -> Future[None]:
        self.probes.append(Future())
        return self.probes[-1]


async def test_a_daemon_is_not_ready_while_it_starts_nor_when_it_stops() -> None:
    clock = FakeClock()
    service = ReadinessService(store=MemoryStore(clock), clock=clock, vitals=make_vitals)
    assert (await service.look()).reasons == [STARTING]
    service.stage = ""
    assert (await service.look()).ready
    service.stage = STOPPING
    assert (await service.look()).reasons == [STOPPING]


async def test_however_many_ask_the_writer_is_probed_once_a_second() -> None:
    clock = FakeClock()
    store = ProbedStore(clock)
    service = make_readiness(store, clock)
    asking = [asyncio.ensure_future(service.look()) for _ in range(50)]
    await settle()
    store.probes[0].set_result(None)
    assert all(readiness.ready for readiness in await asyncio.gather(*asking))
    await clock.turn(0.9)
    await service.look()
    assert len(store.probes) == 1

    await clock.turn(0.2)
    again = asyncio.ensure_future(service.look())
    await settle()
    assert len(store.probes) == 2
    store.probes[1].set_result(None)
    assert (await again).ready


async def test_a_writer_that_does_not_answer_is_a_reason_and_its_probe_is_taken_back() -> None:
    clock = FakeClock()
    store = ProbedStore(clock)
    asking = asyncio.ensure_future(make_readiness(store, clock).look())
    await clock.turn(2.1)
    assert (await asking).reasons == ["the writer has not answered within 2 s"]
    assert store.probes[0].cancelled()


async def test_a_writer_that_refuses_is_a_reason_without_the_path_of_the_database() -> None:
    clock = FakeClock()
    store = ProbedStore(clock)
    asking = asyncio.ensure_future(make_readiness(store, clock).look())
    await settle()
    store.probes[0].set_exception(StoreError("/home/me/data/spyweb.db: disk full"))
    assert (await asking).reasons == ["nothing is stored: StoreError"]
