"""Changes told from memory, the same by every store."""

from __future__ import annotations

from spyweb.model import ChangeKind
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.model.entries import ChangeEvent, Origin, Watch
from spyweb.store.sqlite.changes import ChangeNote, EntryContext, Row
from spyweb.store.sqlite.store import Store
from spyweb.store.sqlite.subscriptions import Notices, Subscriptions
from tests.fakes.changes import PRICES, kept
from tests.fakes.stores import put, until_told


def told(heard: list[ChangeEvent]) -> list[str]:
    return [f"{event.kind} {event.namespace} {event.key.decode()} {event.old!r} {event.new!r}" for event in heard]


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
