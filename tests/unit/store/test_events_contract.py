"""What every store promises about its outbox of changes: the same tests against each kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.model import NULL, JobId, RunId, Value
from spyweb.store.protocol import (
    GLOBAL,
    SCOPES,
    WRITTEN,
    Change,
    ChangeEvent,
    ChangeKind,
    Drop,
    Leave,
    Origin,
    Store,
    Watch,
    job_namespace,
    scope_namespace,
)
from tests.fakes.changes import PRICES, make_run
from tests.fakes.clock import FakeClock
from tests.fakes.stores import KINDS, LOGGED, RULES, adding, dropping, opened, put, putting, until_told

ORDERS = scope_namespace("orders")
EXPIRY = WRITTEN | {ChangeKind.EXPIRED}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path / "spyweb.db", clock, RULES) as store:
        yield store


def tell(events: list[ChangeEvent]) -> list[tuple[str, bytes, Value, Value]]:
    return [(event.kind.value, event.key, event.old, event.new) for event in events]


async def pending(store: Store) -> list[tuple[str, bytes, Value, Value]]:
    return tell(await store.events.pending())


async def test_without_a_watch_nothing_is_kept(store: Store) -> None:
    await put(store, b"k", 1, namespace=ORDERS)

    assert await store.events.pending() == []


async def test_a_change_is_told_whole(store: Store, clock: FakeClock) -> None:
    store.events.watch([Watch(namespace=ORDERS)])
    await put(store, b"k", [1], namespace=ORDERS)
    origin = Origin(job=JobId("a"), run=RunId(7), depth=3)
    await store.values.transform(ORDERS, b"k", putting({b"x": NULL}), origin=origin)

    (_, event) = await store.events.pending()

    assert event == ChangeEvent(
        id=event.id,
        namespace=ORDERS,
        key=b"k",
        kind=ChangeKind.UPDATED,
        old=[1],
        new={b"x": NULL},
        version=2,
        at_ms=clock.now_ms(),
        origin=origin,
    )


async def test_changes_are_kept_in_their_order(store: Store) -> None:
    store.events.watch([Watch(namespace=ORDERS)])

    for number in range(3):
        store.values.transform(ORDERS, b"k", putting(number))
    store.values.transform(ORDERS, b"k", putting(2))
    store.values.transform(ORDERS, b"k", lambda entry: Leave())
    store.values.transform(ORDERS, b"k", dropping())
    await store.values.transform(ORDERS, b"k", putting(NULL))
    await store.values.transform(ORDERS, b"k", putting(1))

    events = await store.events.pending()
    assert tell(events) == [
        ("created", b"k", None, 0),
        ("updated", b"k", 0, 1),
        ("updated", b"k", 1, 2),
        ("updated", b"k", 2, 2),
        ("deleted", b"k", 2, None),
        ("created", b"k", None, NULL),
        ("updated", b"k", NULL, 1),
    ]
    assert [event.id for event in events] == sorted(event.id for event in events)
    assert tell(await store.events.pending(2)) == tell(events)[:2]
    assert tell(await store.events.pending(2, after=events[3].id)) == tell(events)[4:6]


async def test_only_what_is_watched_is_kept(store: Store) -> None:
    store.events.watch(
        [
            Watch(namespace=ORDERS, key=b"a*", kinds=frozenset({ChangeKind.CREATED})),
            Watch(namespace=ORDERS, key=b"b", kinds=frozenset({ChangeKind.DELETED})),
        ]
    )
    for key in [b"a1", b"b", b"c"]:
        await put(store, key, 1, namespace=ORDERS)
        await put(store, key, 2, namespace=ORDERS)
        await store.values.transform(ORDERS, key, dropping())
    await put(store, b"a1", 1, namespace=scope_namespace("orders2"))

    assert await pending(store) == [("created", b"a1", None, 1), ("deleted", b"b", 2, None)]

    store.events.watch([])
    await put(store, b"a2", 1, namespace=ORDERS)
    assert len(await store.events.pending()) == 2


async def test_all_scopes_can_be_watched_and_nothing_beside_them(store: Store) -> None:
    store.events.watch([Watch(namespace=SCOPES, is_prefix=True)])
    for namespace in [ORDERS, scope_namespace(""), "state", GLOBAL, job_namespace(PRICES)]:
        await put(store, b"k", 1, namespace=namespace)

    assert [event.namespace for event in await store.events.pending()] == [ORDERS, "scope:"]


async def test_a_change_that_several_watch_is_kept_once(store: Store) -> None:
    store.events.watch([Watch(namespace=SCOPES, is_prefix=True), Watch(namespace=ORDERS), Watch(namespace=ORDERS)])
    await put(store, b"k", 1, namespace=ORDERS)

    assert len(await store.events.pending()) == 1


async def test_texts_are_watched_like_values(store: Store) -> None:
    origin = Origin(job=PRICES, depth=2)
    store.events.watch([Watch(namespace=GLOBAL)])
    await store.entries.set(GLOBAL, b"k", b"5", origin=origin)
    await store.entries.increment(GLOBAL, b"k", 0, 1, origin=origin)
    await store.entries.expire(GLOBAL, b"k", 1 << 60)
    await store.entries.delete(GLOBAL, b"k", origin=origin)
    await store.entries.delete(GLOBAL, b"k", origin=origin)

    assert await pending(store) == [
        ("created", b"k", None, b"5"),
        ("updated", b"k", b"5", b"6"),
        ("deleted", b"k", b"6", None),
    ]
    assert {event.origin for event in await store.events.pending()} == {origin}


async def test_deleting_nothing_is_told_only_where_it_is_asked_for(store: Store) -> None:
    store.events.watch([Watch(namespace=ORDERS)])
    await store.values.transform(ORDERS, b"k", lambda entry: Drop())
    assert await pending(store) == []

    await store.values.transform(ORDERS, b"k", lambda entry: Drop(always_tell=True))
    assert await pending(store) == [("deleted", b"k", None, None)]


async def test_expiry_is_told_by_the_sweep_to_those_who_asked(store: Store, clock: FakeClock) -> None:
    store.events.watch([Watch(namespace=ORDERS, kinds=EXPIRY), Watch(namespace="state")])
    soon = clock.now_ms() + 1
    await put(store, b"k", [1], namespace=ORDERS, expires_ms=soon)
    await put(store, b"k", 1, expires_ms=soon)
    clock.advance(1)
    assert len(await pending(store)) == 2

    await store.values.sweep()

    assert (await pending(store))[2:] == [("expired", b"k", [1], None)]


async def test_expiry_is_told_by_a_write_over_it_too(store: Store, clock: FakeClock) -> None:
    store.events.watch([Watch(namespace=ORDERS, kinds=EXPIRY)])
    await put(store, b"k", 1, namespace=ORDERS, expires_ms=clock.now_ms())
    await store.values.transform(ORDERS, b"k", adding(5))
    await put(store, b"k", 2, namespace=ORDERS, expires_ms=clock.now_ms())
    await store.values.transform(ORDERS, b"k", dropping())

    assert await pending(store) == [
        ("created", b"k", None, 1),
        ("expired", b"k", 1, None),
        ("created", b"k", None, 5),
        ("updated", b"k", 5, 2),
        ("expired", b"k", 2, None),
    ]


async def test_clearing_tells_of_each_entry(store: Store) -> None:
    store.events.watch([Watch(namespace=LOGGED, key=b"a?")])
    for key in [b"a1", b"a2", b"b1"]:
        await put(store, key, key, namespace=LOGGED)

    assert await store.values.clear(LOGGED, b"*1", origin=Origin(depth=4)) == 2

    assert (await pending(store))[2:] == [("deleted", b"a1", b"a1", None)]
    assert (await store.events.pending())[-1].origin == Origin(depth=4)
    assert len(await store.values.history(LOGGED, b"b1")) == 1


async def test_what_is_refused_is_not_told(store: Store) -> None:
    store.events.watch([Watch(namespace=ORDERS)])
    refused = store.values.transform(ORDERS, b"k", putting([float("nan")]))
    await put(store, b"other", 1, namespace=ORDERS)

    assert refused.exception() is not None
    assert await pending(store) == [("created", b"other", None, 1)]


async def test_a_delivered_event_is_pending_no_more(store: Store) -> None:
    store.events.watch([Watch(namespace=ORDERS)])
    for number in range(3):
        await put(store, b"%d" % number, number, namespace=ORDERS)
    first, second, _ = await store.events.pending()

    await store.runs.record(Change(new=[make_run()], delivered=[first.id, second.id]))
    await store.runs.record(Change(delivered=[first.id]))

    assert await pending(store) == [("created", b"2", None, 2)]


async def test_an_id_is_never_given_twice(store: Store) -> None:
    store.events.watch([Watch(namespace=ORDERS)])
    await put(store, b"a", 1, namespace=ORDERS)
    (first,) = await store.events.pending()
    await store.runs.record(Change(delivered=[first.id]))
    await put(store, b"b", 1, namespace=ORDERS)

    (second,) = await store.events.pending()
    assert second.id > first.id


async def test_somebody_is_told_after_the_commit(store: Store) -> None:
    rounds: list[int] = []
    store.events.watch([Watch(namespace=ORDERS)])
    store.events.on_committed(lambda: rounds.append(1))

    await put(store, b"k", 1)
    await until_told()
    assert rounds == []

    await put(store, b"k", 1, namespace=ORDERS)
    await until_told()
    assert rounds


async def test_somebody_is_told_though_the_writer_has_gone(store: Store) -> None:
    told = asyncio.Event()
    store.events.watch([Watch(namespace=ORDERS)])
    store.events.on_committed(told.set)

    first = store.values.transform("state", b"other", putting(1))
    write = store.values.transform(ORDERS, b"k", putting(1))
    await asyncio.sleep(0)  # the batch begins
    write.cancel()
    await first
    await told.wait()

    assert await pending(store) == [("created", b"k", None, 1)]


@pytest.mark.parametrize("kind", ["sqlite", "sealed"])
async def test_what_was_not_delivered_is_pending_after_a_restart(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(kind, tmp_path / "spyweb.db", clock) as store:
        store.events.watch([Watch(namespace=ORDERS)])
        await put(store, b"k", [1, b"\xff"], namespace=ORDERS)

    async with opened(kind, tmp_path / "spyweb.db", clock) as store:
        assert await pending(store) == [("created", b"k", None, [1, b"\xff"])]
