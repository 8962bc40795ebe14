"""The audit trail: lines about what was done, and few about who was not let in."""

from __future__ import annotations

import asyncio
from asyncio import Future
from unittest.mock import patch

from structlog.testing import capture_logs

from spyweb.limits import AUDIT_PENDING
from spyweb.store.model.access import NewAuditLine
from spyweb.web.access.audit import FAILURES_AT_ONCE, AuditService
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore


def line(**changes: object) -> NewAuditLine:
    fields: dict[str, object] = {"at_ms": 1, "who": "phone", "source": "key", "action": "POST /x", "status": 200}
    return NewAuditLine(**fields | changes)  # type: ignore[arg-type]


async def test_a_line_is_stored_and_logged() -> None:
    clock = FakeClock()
    service = AuditService(MemoryStore(clock).audit, clock)
    with capture_logs() as logged:
        service.note(line(job="prices"))

    (found,) = await service.lines(limit=10)
    assert (found.who, found.action, found.job, found.status, found.times) == ("phone", "POST /x", "prices", 200, 1)
    (event,) = logged
    assert event == {
        "event": "audit", "log_level": "info", "who": "phone", "source": "key", "action": "POST /x", "job": "prices",
        "status": 200, "times": 1,
    }  # fmt: skip
    assert await service.lines(limit=10, before=found.id) == []


async def test_failures_are_told_at_a_bounded_rate_and_counted() -> None:
    clock = FakeClock()
    service = AuditService(MemoryStore(clock).audit, clock)
    for _ in range(1_000):
        service.note_failure(line(status=401))
    assert len(await service.lines(limit=100)) == FAILURES_AT_ONCE

    await clock.turn(60)
    service.note_failure(line(status=401))

    lines = await service.lines(limit=100)
    assert len(lines) == FAILURES_AT_ONCE + 1
    assert lines[0].times == 1_001 - FAILURES_AT_ONCE


async def test_a_store_that_refuses_is_told_and_one_that_is_stuck_fills_no_memory() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    service = AuditService(store.audit, clock)
    store.execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END")
    with capture_logs() as logged:
        service.note(line())
        await clock.turn()
    assert [each["event"] for each in logged] == ["audit", "a line of the audit trail was not stored"]
    store.execute("DROP TRIGGER full")

    added = []

    def add(each: NewAuditLine) -> Future[None]:
        added.append(each)
        return asyncio.get_running_loop().create_future()

    with patch.object(store.audit, "add", side_effect=add):
        for _ in range(AUDIT_PENDING + 5):
            service.note(line())
    assert len(added) == AUDIT_PENDING
