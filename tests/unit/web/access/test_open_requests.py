"""Streams end with their key; what changes something does not end half way."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.model import JobId
from spyweb.subjects.runs.service import StartedRun
from tests.fakes.daemon_service import NINTH
from tests.fakes.keys import Doors

WATCH = "/api/state/watch?namespace=job:prices"


@pytest.mark.parametrize("how", ["key", "session"])
async def test_a_stream_ends_with_its_key(doors: Doors, how: str) -> None:
    headers = doors.signed_in("read") if how == "session" else {"X-SpyWeb-Key": doors.tokens["read"]}
    async with (
        asyncio.timeout(5),
        doors.client.get(WATCH, headers=headers) as stream,
        doors.client.get(WATCH, headers={"X-SpyWeb-Key": doors.tokens["run"]}) as other,
    ):
        assert await stream.content.readline() == await other.content.readline() == b"\n"
        await doors.service.access.revoke("read")
        assert await stream.content.read() == b""
        assert not other.content.at_eof()
        await doors.service.access.revoke("run")
        assert await other.content.read() == b""


async def test_what_is_about_to_change_something_ends_as_it_would_have(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def start(job: JobId, *_: object) -> StartedRun:
        begun.set()
        await goes_on.wait()
        doors.service.note(f"changed {job}")
        return StartedRun(run=NINTH)

    monkeypatch.setattr(doors.service.running, "start", start)
    headers = {"X-SpyWeb-Key": doors.tokens["run"]}
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(doors.client.post("/api/jobs/prices/trigger", headers=headers))
        await begun.wait()
        await doors.service.access.revoke("run")
        goes_on.set()
        assert (await asking).status == 200
    assert doors.service.story == ["changed prices"]
