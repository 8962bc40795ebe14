"""What every store promises about its outbox of changes, and about those who only listen."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.model import NULL, WRITTEN, ChangeKind, JobId, RunId, RunState, Trigger, Value
from spyweb.store.encryption import PLAIN
from spyweb.store.model.entries import GLOBAL, SCOPES, ChangeEvent, Leave, Origin, Watch, scope_namespace
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.changes import ChangeNote, EntryContext, Row
from spyweb.store.sqlite.events import Notices, Subscriptions
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import NEWS, PRICES, kept, make_end, make_run, waiting
from tests.fakes.clock import FakeClock
from tests.fakes.stores import LOGGED, adding, dropping, put, putting, until_told

ORDERS = scope_namespace("orders")
EXPIRY = WRITTEN | {ChangeKind.EXPIRED}


def watch(
    namespace: str, key: bytes = b"*", kinds: frozenset[ChangeKind] = WRITTEN, *, is_prefix: bool = False
) -> Watch:
    return Watch(job=PRICES, namespace=namespace, key=key, kinds=kinds, is_prefix=is_prefix)


def tell(events: list[ChangeEvent]) -> list[tuple[str, bytes, Value, Value]]:
    return [(event.kind.value, event.key, event.old, event.new) for event in events]


def listen(store: Store, *watches: Watch) -> list[ChangeEvent]:
    """Have changes kept, and told to a client as well: it must hear the same."""
    store.events.watch(watches)
    heard: list[ChangeEvent] = []
    for each in watches:
        store.events.follow(each, heard.append)
    return heard


async def changes(store: Store, heard: list[ChangeEvent]) -> list[tuple[str, bytes, Value, Value]]:
    """Return the changes that are kept, and were heard."""
    await until_told()
    found = await kept(store)
    assert [replace(event, id=0) for event in found] == heard
    return tell(found)


async def test_a_change_is_told_whole(store: Store, clock: FakeClock) -> None:
    store.events.watch([watch(namespace=ORDERS)])
    await put(store, b"k", [1], namespace=ORDERS)
    origin = Origin(job=JobId("a"), run=RunId(7), depth=3)
    await store.values.transform(ORDERS, b"k", putting({b"x": NULL}), origin=origin)

    (_, event) = await kept(store)

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
    heard = listen(store, watch(namespace=ORDERS))

    for number in range(3):
        store.values.transform(ORDERS, b"k", putting(number))
    store.values.transform(ORDERS, b"k", putting(2))
    store.values.transform(ORDERS, b"k", lambda entry: Leave())
    store.values.transform(ORDERS, b"k", dropping())
    await store.values.transform(ORDERS, b"k", putting(NULL))
    await store.values.transform(ORDERS, b"k", putting(1))

    assert await changes(store, heard) == [
        ("created", b"k", None, 0),
        ("updated", b"k", 0, 1),
        ("updated", b"k", 1, 2),
        ("updated", b"k", 2, 2),
        ("deleted", b"k", 2, None),
        ("created", b"k", None, NULL),
        ("updated", b"k", NULL, 1),
    ]
    numbers = [event.id for event in await kept(store)]
    assert numbers == sorted(numbers)


async def test_what_jobs_want_is_given_by_job_and_in_order_a_page_at_a_time(store: Store, clock: FakeClock) -> None:
    store.events.watch([Watch(job=job, namespace=ORDERS, key=key) for job, key in [(PRICES, b"*"), (NEWS, b"b")]])
    origin = Origin(job=JobId("a"), run=RunId(7), depth=3)
    for key in (b"a", b"b", b"b"):
        await store.values.transform(ORDERS, key, putting(1), origin=origin)

    first = await store.events.wanted(2)
    second = await store.events.wanted(2, after=(first[-1].job, first[-1].event))
    third = await store.events.wanted(2, after=(second[-1].job, second[-1].event))
    assert [(each.job, each.key, each.kind) for each in [*first, *second, *third]] == [
        (NEWS, b"b", ChangeKind.CREATED),
        (NEWS, b"b", ChangeKind.UPDATED),
        (PRICES, b"a", ChangeKind.CREATED),
        (PRICES, b"b", ChangeKind.CREATED),
        (PRICES, b"b", ChangeKind.UPDATED),
    ]
    assert [each.event for each in second] == [1, 2]
    assert {(each.namespace, each.at_ms, each.origin) for each in first} == {(ORDERS, clock.now_ms(), origin)}


async def test_only_what_is_watched_is_kept(store: Store) -> None:
    created = watch(namespace=ORDERS, key=b"a*", kinds=frozenset({ChangeKind.CREATED}))
    heard = listen(store, created, watch(namespace=ORDERS, key=b"b", kinds=frozenset({ChangeKind.DELETED})))
    for key in [b"a1", b"b", b"c"]:
        await put(store, key, 1, namespace=ORDERS)
        await put(store, key, 2, namespace=ORDERS)
        await store.values.transform(ORDERS, key, dropping())
    await put(store, b"a1", 1, namespace=scope_namespace("orders2"))

    assert await changes(store, heard) == [("created", b"a1", None, 1), ("deleted", b"b", 2, None)]

    store.events.watch([])
    await put(store, b"a2", 1, namespace=ORDERS)
    assert len(await kept(store)) == 2


async def test_a_change_that_several_watch_is_kept_once(store: Store) -> None:
    store.events.watch([watch(namespace=SCOPES, is_prefix=True), watch(namespace=ORDERS), watch(namespace=ORDERS)])
    await put(store, b"k", 1, namespace=ORDERS)

    assert len(await kept(store)) == 1


async def test_a_change_is_kept_for_those_that_watched_when_it_happened(store: Store) -> None:
    store.events.watch([Watch(namespace=ORDERS, job=PRICES)])
    await put(store, b"k", 1, namespace=ORDERS)
    store.events.watch([Watch(namespace=ORDERS, job=NEWS)])
    await put(store, b"k", 2, namespace=ORDERS)

    assert [(each.job, each.event) for each in await waiting(store)] == [(PRICES, 1), (NEWS, 2)]


async def test_texts_are_watched_like_values(store: Store) -> None:
    origin = Origin(job=PRICES, depth=2)
    heard = listen(store, watch(namespace=GLOBAL))
    await store.values.set(GLOBAL, b"k", b"5", origin=origin)
    await store.values.increment(GLOBAL, b"k", 0, 1, origin=origin)
    await store.values.expire(GLOBAL, b"k", 1 << 60)
    await store.values.delete(GLOBAL, b"k", origin=origin)
    await store.values.delete(GLOBAL, b"k", origin=origin)

    assert await changes(store, heard) == [
        ("created", b"k", None, b"5"),
        ("updated", b"k", b"5", b"6"),
        ("deleted", b"k", b"6", None),
    ]
    assert {event.origin for event in await kept(store)} == {origin}


async def test_expiry_is_told_by_the_sweep_to_those_who_asked(store: Store, clock: FakeClock) -> None:
    heard = listen(store, watch(namespace=ORDERS, kinds=EXPIRY), watch(namespace="state"))
    soon = clock.now_ms() + 1
    await put(store, b"k", [1], namespace=ORDERS, expires_ms=soon)
    await put(store, b"k", 1, expires_ms=soon)
    clock.advance(1)
    assert len(await changes(store, heard)) == 2

    await store.values.sweep()

    assert (await changes(store, heard))[2:] == [("expired", b"k", [1], None)]


async def test_expiry_is_told_by_a_write_over_it_too(store: Store, clock: FakeClock) -> None:
    heard = listen(store, watch(namespace=ORDERS, kinds=EXPIRY))
    await put(store, b"k", 1, namespace=ORDERS, expires_ms=clock.now_ms())
    await store.values.transform(ORDERS, b"k", adding(5))
    await put(store, b"k", 2, namespace=ORDERS, expires_ms=clock.now_ms())
    await store.values.transform(ORDERS, b"k", dropping())

    assert await changes(store, heard) == [
        ("created", b"k", None, 1),
        ("expired", b"k", 1, None),
        ("created", b"k", None, 5),
        ("updated", b"k", 5, 2),
        ("expired", b"k", 2, None),
    ]


async def test_clearing_tells_of_each_entry(store: Store) -> None:
    heard = listen(store, watch(namespace=LOGGED, key=b"a?"))
    for key in [b"a1", b"a2", b"b1"]:
        await put(store, key, key, namespace=LOGGED)

    assert await store.values.clear(LOGGED, b"*1", origin=Origin(depth=4)) == 2

    assert (await changes(store, heard))[2:] == [("deleted", b"a1", b"a1", None)]
    assert heard[-1].origin == Origin(depth=4)
    assert len(await store.values.history(LOGGED, b"b1")) == 1


async def test_what_is_refused_is_not_told(store: Store) -> None:
    heard = listen(store, watch(namespace=ORDERS))
    refused = store.values.transform(ORDERS, b"k", putting([float("nan")]))
    await put(store, b"other", 1, namespace=ORDERS)

    assert refused.exception() is not None
    assert await changes(store, heard) == [("created", b"other", None, 1)]


async def test_a_change_that_was_handed_out_or_dropped_waits_no_more(store: Store) -> None:
    store.events.watch([watch(namespace=ORDERS)])
    for number in range(3):
        await put(store, b"%d" % number, number, namespace=ORDERS)
    first, second, _ = await waiting(store)

    new = [replace(make_run(), trigger=Trigger(type="state", event=first.event))]
    await store.runs.record(Change(new=new, dropped=[second]))
    await store.runs.record(Change(dropped=[second]))

    assert tell(await kept(store)) == [("created", b"2", None, 2)]


async def test_an_id_is_never_given_twice(store: Store) -> None:
    store.events.watch([watch(namespace=ORDERS)])
    await put(store, b"a", 1, namespace=ORDERS)
    (first,) = await waiting(store)
    await store.runs.record(Change(dropped=[first]))
    await put(store, b"b", 1, namespace=ORDERS)

    (second,) = await kept(store)
    assert second.id > first.event


WATCHES = [Watch(job=job, namespace=SCOPES, is_prefix=True) for job in (PRICES, NEWS)]


@pytest.fixture
async def watched(store: Store) -> Store:
    store.events.watch(WATCHES)
    await put(store, b"a", b"first", namespace="scope:orders")
    await put(store, b"b", b"second", namespace="scope:orders")
    return store


async def start(watched: Store, *jobs: JobId, event: int = 1) -> list[RunId]:
    new = [structs.replace(make_run(job, due_ms=None), trigger=Trigger(type="state", event=event)) for job in jobs]
    return [run for run in await watched.runs.record(Change(new=new)) if run is not None]


async def end(watched: Store, run: RunId, *, again: JobId | None = None) -> list[RunId | None]:
    retry = make_run(again, due_ms=None, state=RunState.WAITING) if again else None
    new = [structs.replace(retry, trigger=Trigger(type="state", event=1), follows=run)] if retry else []
    return await watched.runs.record(Change(end=[structs.replace(make_end(run), event=1)], new=new))


async def drop(watched: Store, *parts: tuple[JobId, int]) -> None:
    dropped = [each for each in await waiting(watched) if (each.job, each.event) in parts]
    assert len(dropped) == len(parts)
    await watched.runs.record(Change(dropped=dropped))


async def left(watched: Store) -> list[tuple[str, int]]:
    return [(each.job, each.event) for each in await watched.events.wanted(10)]


async def test_an_event_that_was_handed_out_stays_until_its_runs_have_ended(watched: Store) -> None:
    first, second = await start(watched, PRICES, NEWS)
    assert await left(watched) == [(NEWS, 2), (PRICES, 2)]
    await end(watched, first)
    found = await watched.events.find(1)
    assert found is not None
    assert (found.key, found.new) == (b"a", b"first")
    await end(watched, second)

    assert await watched.events.find(1) is None
    assert await left(watched) == [(NEWS, 2), (PRICES, 2)]


async def test_a_retry_keeps_it(watched: Store) -> None:
    await drop(watched, (NEWS, 1))
    (first,) = await start(watched, PRICES)
    (second,) = await end(watched, first, again=PRICES)
    assert await watched.events.find(1) is not None
    assert second is not None
    assert await end(watched, first, again=PRICES) == [None], "it had ended before"
    assert await watched.events.find(1) is not None
    await end(watched, second)

    assert await watched.events.find(1) is None


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
