"""What is sent after a run without a daemon, and what whoever waits is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from spyweb.daemon.foreground import send_messages
from spyweb.daemon.runtime import JobRuntime
from spyweb.errors import StoreError
from spyweb.model import JobId
from spyweb.outbox.sender import OutboxSender
from spyweb.runs.live import LiveJobs
from tests.fakes.changes import PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.findings import OTHER_HOOK, message
from tests.fakes.memory_store import MemoryStore
from tests.fakes.receiver import Receiver


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(FakeClock())


async def send(store: MemoryStore) -> tuple[list[str], list[int]]:
    """What has arrived, and how many messages were announced."""
    clock, told = FakeClock(), list[int]()
    receiver = Receiver(clock.now_ms)
    outbox_sender = OutboxSender(
        outbox=store.outbox, send=receiver.send, clock=clock, random=lambda: 0.5, live=LiveJobs()
    )
    await send_messages(cast("JobRuntime", SimpleNamespace(outbox_sender=outbox_sender)), PRICES, told.append)
    return receiver.arrived, told


async def test_a_jobs_own_messages_are_announced_and_sent(store: MemoryStore) -> None:
    await store.outbox.add([message("1"), message("2"), message("3", OTHER_HOOK, job=JobId("news"))])
    assert await send(store) == (["1", "2"], [2])


async def test_where_there_is_nothing_to_send_nothing_is_told(store: MemoryStore) -> None:
    (number,) = await store.outbox.add([message("1")])
    await store.outbox.give_up(number, error="")
    assert await send(store) == ([], [])


async def test_a_store_that_refuses_leaves_them_for_the_daemon(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_job: JobId, _limit: int) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store.outbox, "unsent", refuse)
    assert await send(store) == ([], [])
