"""What a node does about what other nodes have committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.hearing import LEAST_S, busy_slots, hear_others, prepare_for_slots
from spyweb.errors import StoreError
from spyweb.ownership import CHIEF, Slot
from spyweb.store.postgres.bell import PARTS
from spyweb.subjects.when.service import MaintenanceService
from spyweb.web.access.keys import AccessService
from tests.fakes.clock import FakeClock

SENDING = Slot("", 7)
ON_BEAT = ["changes", "keys", "locks", "messages", "plan", "windows"]


class Parts:
    """The parts of a daemon, each of which notes that it was asked to look."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.trouble: Exception | None = None
        self.alerts = SimpleNamespace(wake=self.note("plan"), load=self.read("subjects"), planning=asyncio.Lock())
        work = SimpleNamespace(hear=self.read("runs"))
        self.node: Any = SimpleNamespace(work=work, nodes=SimpleNamespace(bell=SimpleNamespace()))
        self.clock = FakeClock()
        runtime = SimpleNamespace(
            clock=self.clock,
            outbox_sender=SimpleNamespace(look=self.note("messages"), busy_slots=lambda: {SENDING}),
            world=SimpleNamespace(locks=SimpleNamespace(look=self.note("locks"))),
        )
        services = {
            AccessService: SimpleNamespace(load=self.read("keys")),
            MaintenanceService: SimpleNamespace(load=self.read("windows")),
        }
        self.daemon: Any = SimpleNamespace(
            runtime=runtime,
            alerts=self.alerts,
            signs=SimpleNamespace(load=self.read("signs")),
            channel_checker=SimpleNamespace(wake=self.note("channels")),
            triggers=SimpleNamespace(wake=self.note("changes")),
            services=services,
        )

    def note(self, what: str) -> Any:
        return lambda: self.story.append(what)

    def read(self, what: str) -> Any:
        async def read() -> None:
            self.story.append(what)
            if self.trouble:
                raise self.trouble

        return read

    def hear(self, *parts: str) -> None:
        self.node.nodes.bell.hear(parts)

    async def heard(self, seconds: float = LEAST_S) -> list[str]:
        await self.clock.turn(seconds)
        heard, self.story = sorted(self.story), []
        return heard


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    parts = Parts()
    task = asyncio.create_task(hear_others(parts.daemon, parts.node))
    await parts.clock.turn()
    yield parts
    task.cancel()


async def test_each_word_of_the_bell_has_those_look_whom_it_concerns_and_a_beat_all_of_them(parts: Parts) -> None:
    looks = {}
    for part in PARTS:
        parts.hear(part)
        looks[part] = await parts.heard()
    assert looks == {
        "events": ["changes"],
        "outbox": ["messages"],
        "locks": ["locks"],
        "incidents": ["plan", "windows"],
        "keys": ["keys"],
        "runs": ["runs"],
    }
    parts.node.beaten()
    assert await parts.heard() == ON_BEAT
    parts.node.gained()
    assert await parts.heard() == sorted([*ON_BEAT, "channels"])


async def test_whatever_others_commit_they_look_at_once_and_then_ten_times_a_second(parts: Parts) -> None:
    parts.hear("events")
    assert await parts.heard(0) == ["changes"]
    looks = []
    for _ in range(20):
        parts.hear("events")
        looks += await parts.heard(LEAST_S / 10)
    assert len(looks) == 2


@pytest.mark.parametrize("trouble", [StoreError("away"), ValueError("of a later version")])
async def test_what_can_not_be_read_is_read_again_with_the_next_word(parts: Parts, trouble: Exception) -> None:
    parts.trouble = trouble
    with capture_logs() as lines:
        parts.hear("keys", "locks")
        assert await parts.heard() == ["keys", "locks"]
    assert [line["reason"] for line in lines] == [str(trouble)]
    parts.trouble = None
    parts.node.beaten()
    assert await parts.heard() == ON_BEAT


async def test_a_slot_that_comes_is_prepared_for_and_one_that_is_used_is_kept(parts: Parts) -> None:
    await prepare_for_slots(parts.daemon)
    assert await parts.heard() == ["signs", "subjects"]
    assert busy_slots(parts.daemon) == {SENDING}
    async with parts.alerts.planning:
        assert busy_slots(parts.daemon) == {SENDING, CHIEF}
