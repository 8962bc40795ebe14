"""The audit trail, in every kind of store."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.store.model.access import LINES_KEPT, NewAuditLine
from spyweb.store.sqlite.store import Store


def line(at_ms: int) -> NewAuditLine:
    action = "POST /api/jobs/{job}/trigger"
    return NewAuditLine(
        at_ms=at_ms, who="phone", source="key", action=action, job="prices", status=200, address="10.0.0.1", times=2
    )


async def test_lines_are_told_back_whole_newest_first(store: Store) -> None:
    for at_ms in (1, 2, 3):
        await store.audit.add(line(at_ms))

    newest, older = await store.audit.list(limit=2)

    assert (newest.at_ms, older.at_ms) == (3, 2)
    assert (newest.who, newest.source, newest.action) == ("phone", "key", "POST /api/jobs/{job}/trigger")
    assert (newest.job, newest.target, newest.status) == ("prices", "", 200)
    assert (newest.address, newest.times) == ("10.0.0.1", 2)
    assert [each.at_ms for each in await store.audit.list(limit=2, before=older.id)] == [1]


@pytest.mark.slow
async def test_only_the_newest_are_kept(store: Store) -> None:
    await asyncio.gather(*(store.audit.add(line(at_ms)) for at_ms in range(LINES_KEPT + 2)))

    kept = await store.audit.list(limit=LINES_KEPT * 2)

    assert len(kept) == LINES_KEPT
    assert (kept[0].at_ms, kept[-1].at_ms) == (LINES_KEPT + 1, 2)
