"""What one node tells another at once, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from spyweb.clock import RealClock
from spyweb.incidents.policy import NOBODY
from spyweb.incidents.truth import SignSeen
from spyweb.model import JobId, RunId
from spyweb.store.model.access import NewKey, Scope
from spyweb.store.model.entries import Put, Watch
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.model.messages import Channel, NewMessage, Target
from spyweb.store.postgres import bell
from spyweb.store.postgres.bell import PARTS, Bell
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres
from spyweb.store.sqlite.store import Store
from tests.fakes.stores import fresh_server

KEY = NewKey(name="phone", handle="abcdefgh", hash=b"x", scopes=(Scope.READ,), jobs=(), created_ms=1)
MESSAGE = NewMessage(job=JobId("a"), target=Target(Channel.WEBHOOK, "https://example.org"), payload=b"{}")
SIGN = SubjectEvent(subject="job:a", event=SignSeen("broken", "line 4"), policy=NOBODY, at_ms=1)


class Ears:
    """What a bell hears, as it comes."""

    def __init__(self, store: Store, bell: Bell) -> None:
        self.store, self.bell = store, bell
        self._heard: asyncio.Queue[set[str]] = asyncio.Queue()
        bell.hear = self._hear

    def _hear(self, parts: Collection[str]) -> None:
        self._heard.put_nowait(set(parts))

    async def next(self) -> set[str]:
        async with asyncio.timeout(20):
            return await self._heard.get()

    @property
    def is_silent(self) -> bool:
        return self._heard.empty()


@asynccontextmanager
async def listening(server: PgServer) -> AsyncIterator[Ears]:
    store = await open_postgres(server, clock=RealClock())
    assert store.nodes
    ears = Ears(store, store.nodes.bell)
    task = asyncio.create_task(ears.bell.keep_listening())
    assert await ears.next() == set(PARTS), "whatever was told before"
    try:
        yield ears
    finally:
        task.cancel()
        await asyncio.wait({task})
        await store.close()


async def change(store: Store, part: str) -> None:
    """Have a part of the store announce something."""
    if part == "events":
        store.events.watch([Watch(namespace="state", job=JobId("a"))])
        await store.values.transform("state", b"k", lambda _: Put(1))
    elif part == "outbox":
        await store.outbox.add([MESSAGE])
    elif part == "locks":
        await store.locks.acquire(b"door", b"a", RunId(1), 1000)
        await store.locks.release(b"door", b"a")
    elif part == "incidents":
        await store.incidents.note([SIGN])
    elif part == "keys":
        await store.keys.add(KEY)


@pytest.mark.parametrize("part", ["events", "outbox", "locks", "incidents", "keys"])
async def test_what_others_want_to_hear_of_is_told_once_it_is_committed_and_not_to_oneself(
    server: PgServer, part: str
) -> None:
    async with listening(server) as mine, listening(server) as others:
        await change(mine.store, part)
        assert await others.next() == {part}
        others.bell.ring("runs")
        assert await mine.next() == {"runs"}, "and nothing that it has told itself"


async def test_words_of_a_moment_are_told_at_once_and_those_of_others_databases_and_strangers_are_ignored(
    server: PgServer,
) -> None:
    with fresh_server() as elsewhere:
        async with listening(server) as one, listening(server) as other, listening(elsewhere) as stranger:
            session = server.connect()
            session.execute(f"NOTIFY {server.quoted_schema}, 'nonsense é drop'")
            session.close()
            for part in ("locks", "runs", "locks"):
                one.bell.ring(part)
            assert await other.next() == {"locks", "runs"}
            assert stranger.is_silent


async def test_a_lost_connection_is_made_again_and_then_everything_may_be_new(
    server: PgServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bell, "AGAIN_S", 0)
    async with listening(server) as one, listening(server) as other:
        session = server.connect()
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1",
            [f"LISTEN {server.quoted_schema}"],
        )
        session.close()
        assert await one.next() == await other.next() == set(PARTS)
        one.bell.ring("keys")
        assert await other.next() == {"keys"}
