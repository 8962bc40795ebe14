"""What a node does about what other nodes have committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from spyweb.cluster.node import ClusterNode
from spyweb.daemon.build import Daemon
from spyweb.daemon.hearing import LEAST_S, busy_slots, hear_others, prepare_for_slots
from spyweb.errors import StoreError
from spyweb.ownership import CHIEF, Slot
from spyweb.store.postgres.bell import PARTS
from spyweb.subjects.when.service import MaintenanceService
from spyweb.web.access.keys import AccessService
from tests.fakes.clock import FakeClock

SENDING = Slot("", 7)


class Parts:
    """The parts of a daemon, each of which notes that it was asked to look."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.trouble: Exception | None = None
        self.alerts = SimpleNamespace(wake=self.note("plan"), load=self.read("subjects"), planning=asyncio.Lock())
        self.node = SimpleNamespace(look=self.note("runs"), beaten=None, nodes=SimpleNamespace(bell=SimpleNamespace()))
        self.clock = FakeClock()
        runtime = SimpleNamespace(
            clock=self.clock,
            outbox_sender=SimpleNamespace(look=self.note("messages"), busy_slots=lambda: {SENDING}),
            world=SimpleNamespace(locks=SimpleNamespace(look=self.note("locks"))),
        )
        daemon: Any = SimpleNamespace(
            runtime=runtime,
            alerts=self.alerts,
            signs=SimpleNamespace(load=self.read("signs")),
            channel_checker=SimpleNamespace(wake=self.note("channels")),
            triggers=SimpleNamespace(wake=self.note("changes")),
            services={
                AccessService: SimpleNamespace(load=self.read("keys")),
                MaintenanceService: SimpleNamespace(load=self.read("windows")),
            },
        )
        self.daemon: Daemon = daemon

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(hear_others(self.daemon, cast("ClusterNode", self.node)))
        await self.clock.turn()
        yield
        task.cancel()

    def note(self, what: str) -> Any:
        return lambda: self.story.append(what)

    def read(self, what: str) -> Any:
        async def read() -> None:
            self.story.append(what)
            if self.trouble:
                raise self.trouble

        return read

    def heard(self) -> list[str]:
        heard, self.story = sorted(self.story), []
        return heard


@pytest.fixture
async def parts() -> Parts:
    return Parts()


async def test_each_word_of_the_bell_has_the_parts_look_that_it_concerns_and_a_beat_all_of_them(parts: Parts) -> None:
    async with parts.hearing():
        looks = {}
        for part in PARTS:
            parts.node.nodes.bell.hear({part})
            await parts.clock.turn(LEAST_S)
            looks[part] = parts.heard()
        assert looks == {
            "events": ["changes"],
            "outbox": ["messages"],
            "locks": ["locks"],
            "incidents": ["plan", "windows"],
            "keys": ["keys"],
            "runs": ["runs"],
        }
        parts.node.beaten()
        await parts.clock.turn(LEAST_S)
        assert parts.heard() == ["changes", "keys", "locks", "messages", "plan", "windows"]


async def test_a_store_that_refuses_is_asked_again_with_the_next_word(parts: Parts) -> None:
    async with parts.hearing():
        parts.trouble = StoreError("away")
        with capture_logs() as lines:
            parts.node.nodes.bell.hear({"keys"})
            await parts.clock.turn(LEAST_S)
        assert [line["reason"] for line in lines] == ["away"]
        parts.trouble = ValueError("of a later version")
        with capture_logs() as lines:
            parts.node.nodes.bell.hear({"keys"})
            await parts.clock.turn(LEAST_S)
        assert len(lines) == 1
        parts.trouble = None
        parts.node.beaten()
        await parts.clock.turn(LEAST_S)
        assert parts.heard().count("keys") == 3


async def test_a_slot_that_comes_is_prepared_for_and_one_that_is_used_is_kept(parts: Parts) -> None:
    await prepare_for_slots(parts.daemon)
    assert parts.heard() == ["channels", "signs", "subjects"]
    assert busy_slots(parts.daemon) == {SENDING}
    async with parts.alerts.planning:
        assert busy_slots(parts.daemon) == {SENDING, CHIEF}
