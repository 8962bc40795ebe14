"""Changes told from memory, the same by every store."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.model import ChangeKind, JobId, RunId
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.model.entries import ChangeEvent, Origin, Watch
from spyweb.store.sqlite.changes import ChangeNote, EntryContext, Row
from spyweb.store.sqlite.store import Store
from spyweb.store.sqlite.subscriptions import Notices, Subscriptions
from tests.fakes.changes import PRICES, kept
from tests.fakes.clock import FakeClock
from tests.fakes.stores import adding, dropping, put, putting, until_told

ALL = frozenset(ChangeKind)


def told(heard: list[ChangeEvent]) -> list[str]:
    return [f"{event.kind} {event.namespace} {event.key.decode()} {event.old!r} {event.new!r}" for event in heard]


async def test_each_change_is_told_after_its_commit_in_order(store: Store) -> None:
    heard: list[ChangeEvent] = []
    store.events.follow(Watch(namespace="state", kinds=ALL), heard.append)
    await put(store, b"a", 1)
    await store.values.transform("state", b"a", adding(1))
    await store.values.transform("state", b"a", dropping())
    await store.values.transform("state", b"a", dropping())
    await until_told()
    assert told(heard) == ["created state a None 1", "updated state a 1 2", "deleted state a 2 None"]
    assert [event.version for event in heard] == [1, 2, 2]
    assert await kept(store) == []


async def test_only_what_was_asked_for_is_told(store: Store) -> None:
    heard: list[ChangeEvent] = []
    kinds = frozenset({ChangeKind.CREATED})
    store.events.follow(Watch(namespace="scope:", is_prefix=True, key=b"o-*", kinds=kinds), heard.append)
    for namespace, key in [("scope:a", b"o-1"), ("scope:b", b"o-2"), ("scope:a", b"p"), ("state", b"o-3")]:
        await put(store, key, 1, namespace=namespace)
        await put(store, key, 2, namespace=namespace)
    await until_told()
    assert told(heard) == ["created scope:a o-1 None 1", "created scope:b o-2 None 1"]


async def test_who_wrote_is_told(store: Store) -> None:
    heard: list[ChangeEvent] = []
    store.events.follow(Watch(namespace="state", kinds=ALL), heard.append)
    origin = Origin(job=JobId("prices"), run=RunId(3), depth=2)
    await store.values.transform("state", b"a", putting(1), origin=origin)
    await until_told()
    assert [event.origin for event in heard] == [origin]


async def test_texts_that_scripts_keep_are_told_too(store: Store) -> None:
    heard: list[ChangeEvent] = []
    store.events.follow(Watch(namespace="", is_prefix=True, kinds=ALL), heard.append)
    await store.values.set("job:x", b"a", b"1")
    await store.values.increment("global", b"n", 0, 5)
    await store.values.delete("job:x", b"a")
    await until_told()
    assert told(heard) == ["created job:x a None b'1'", "created global n None b'5'", "deleted job:x a b'1' None"]


async def test_what_is_cleared_is_told(store: Store) -> None:
    for key in (b"a1", b"a2", b"b"):
        await put(store, key, 1)
    heard: list[ChangeEvent] = []
    store.events.follow(Watch(namespace="state", key=b"*1", kinds=ALL), heard.append)
    await store.values.clear("state", b"a*")
    await until_told()
    assert told(heard) == ["deleted state a1 1 None"]


async def test_what_expires_is_told_when_it_is_swept_or_written_over(store: Store, clock: FakeClock) -> None:
    await put(store, b"a", 1, expires_ms=clock.now_ms() + 5)
    await put(store, b"b", 2, expires_ms=clock.now_ms() + 5)
    heard: list[ChangeEvent] = []
    store.events.follow(Watch(namespace="state", kinds=ALL), heard.append)
    clock.advance(1)
    await put(store, b"a", 3)
    await store.values.sweep()
    await until_told()
    assert told(heard) == ["expired state a 1 None", "created state a None 3", "expired state b 2 None"]


async def test_what_fails_is_not_told(store: Store) -> None:
    heard: list[ChangeEvent] = []
    store.events.follow(Watch(namespace="state", kinds=ALL), heard.append)

    async def refuse(key: bytes) -> None:
        with pytest.raises(Exception, match="stored"):
            await store.values.transform("state", key, putting(float("nan")))

    await asyncio.gather(put(store, b"a", 1), refuse(b"b"), put(store, b"c", 1))
    await until_told()
    assert told(heard) == ["created state a None 1", "created state c None 1"]


async def test_who_has_left_hears_nothing_more_and_others_do(store: Store) -> None:
    first: list[ChangeEvent] = []
    second: list[ChangeEvent] = []
    leave = store.events.follow(Watch(namespace="state"), first.append)
    store.events.follow(Watch(namespace="state"), second.append)
    await put(store, b"a", 1)
    await until_told()
    leave()
    leave()
    await put(store, b"b", 1)
    await until_told()
    assert (len(first), len(second)) == (1, 2)


async def test_the_outbox_keeps_what_it_is_told_to_beside(store: Store) -> None:
    calls: list[str] = []
    heard: list[ChangeEvent] = []
    store.events.watch([Watch(job=PRICES, namespace="state", key=b"a")])
    store.events.on_committed(lambda: calls.append("committed"))
    store.events.follow(Watch(namespace="state"), heard.append)
    await put(store, b"a", 1)
    await put(store, b"b", 1)
    await until_told()
    assert [event.key for event in await kept(store)] == [b"a"]
    assert calls == ["committed"]
    assert told(heard) == ["created state a None 1", "created state b None 1"]


def test_an_op_that_is_tried_again_is_heard_once() -> None:
    notices = Notices(Subscriptions([Watch(namespace="state")]))
    row = Row("i", 1, None, 1, 5, 5)
    for _ in range(2):
        notices.begin()
        notices.note(EntryContext(PLAIN, "state", b"a", 5), [ChangeNote(ChangeKind.CREATED, None, row)], Origin())
    assert told(notices.events) == ["created state a None 1"]
