"""What every store promises about typed values: the same tests against SQLite, encrypted SQLite, and dictionaries."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any

import pytest

from spyweb.errors import StoreClosed, StoreError, TooLarge
from spyweb.model import NULL, HistoryRule, Value
from spyweb.store.model.entries import GLOBAL, Entry, Leave, Order, PortableEntry, Put
from spyweb.store.sqlite import scanning
from spyweb.store.sqlite.store import Store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import AGED, LOGGED, all_items, dropping, look, put, putting

STATE = "state"
LARGEST = (1 << 63) - 1


def nested(depth: int) -> Value:
    value: Value = []
    for _ in range(depth - 1):
        value = [value]
    return value


# Values


VALUES: list[Value] = [
    True, 0, LARGEST, -LARGEST - 1, -0.0, 5e-324, math.inf, b"", b"a\0b", b"\xff\xfe", NULL, [], {},
    [1, 1.0, True, b"1", NULL], {b"a": {b"b": [NULL, b"c"]}, b"": b""}, {1: b"integer", b"1": b"string"},
    [math.inf, -math.inf], {b"deep": nested(199)},
]  # fmt: skip
NO_VALUES: list[tuple[Any, str]] = [
    (None, "nil"), (1 << 63, "64 bits"), ([1 << 64], "64 bits"), (math.nan, "NaN"), ([{b"a": math.nan}], "NaN"),
    ([None], "nil"), ("text", "type str"), ({b"a": object()}, "type object"), (nested(202), "nested deeper than 200"),
]  # fmt: skip


async def test_every_value_comes_back_exactly(store: Store) -> None:
    for value in VALUES:
        await put(store, b"k", value)
        assert repr(await look(store, b"k")) == repr(value)  # 1, 1.0 and true are equal, and not the same


async def test_what_is_no_value_is_refused_and_nothing_is_written(store: Store) -> None:
    await put(store, b"k", b"before")
    for value, reason in NO_VALUES:
        with pytest.raises(StoreError, match=reason):
            await put(store, b"k", value)
        assert await look(store, b"k") == b"before"


async def test_a_value_that_is_changed_later_is_stored_as_it_was(store: Store) -> None:
    value: list[Value] = [1]
    await put(store, b"k", value)
    value.append(2)

    assert await look(store, b"k") == [1]


async def test_a_text_entry_and_a_typed_one_are_the_same_entry_and_both_are_counted_up(store: Store) -> None:
    await store.values.set(GLOBAL, b"k", b"7")
    assert await look(store, b"k", namespace=GLOBAL) == b"7"

    await put(store, b"k", b"8", namespace=GLOBAL)
    assert await store.values.get(GLOBAL, b"k") == b"8"
    assert await store.values.increment(GLOBAL, b"k", 0, 1) == 9

    await put(store, b"k", 7, namespace=GLOBAL)

    assert await store.values.increment(GLOBAL, b"k", 100, 1) == 8


# Transforms


async def test_a_transform_is_handed_the_entry_and_its_result_is_given(store: Store, clock: FakeClock) -> None:
    await put(store, b"k", 1)
    clock.advance(1)
    seen: list[Entry | None] = []

    def change(entry: Entry | None) -> Put:
        seen.append(entry)
        return Put(2, result=b"done")

    assert await store.values.transform(STATE, b"k", change) == b"done"
    now_ms = clock.now_ms()
    assert seen[-1] == Entry(value=1, version=1, created_ms=now_ms - 1000, updated_ms=now_ms - 1000)
    assert await store.values.read(STATE, b"k") == Entry(
        value=2, version=2, created_ms=now_ms - 1000, updated_ms=now_ms
    )


async def test_a_transform_that_raises_fails_alone_and_leaves_the_entry(store: Store) -> None:
    await put(store, b"k", 1)

    def refuse(entry: Entry | None) -> Put:
        raise LookupError("no such thing")

    before = store.values.transform(STATE, b"a", putting(1))
    refused = store.values.transform(STATE, b"k", refuse)
    after = store.values.transform(STATE, b"b", putting(1))

    with pytest.raises(LookupError, match="no such thing"):
        await refused
    await before
    await after
    assert await store.values.keys(STATE) == [b"a", b"b", b"k"]
    assert await look(store, b"k") == 1


async def test_a_read_sees_the_writes_asked_for_before_it_without_waiting_for_them(store: Store) -> None:
    for number in range(20):
        store.values.transform(STATE, b"k", putting(number))
    assert await look(store, b"k") == 19

    store.values.clear(STATE)
    assert await look(store, b"k") is None

    store.values.load([item(b"k", 5)], replace=True)
    assert await look(store, b"k") == 5
    store.values.move(STATE, "state@b")
    assert await look(store, b"k", namespace="state@b") == 5


async def test_questions_about_many_keys_see_the_writes_asked_for_before_them(store: Store) -> None:
    for number in range(20):
        store.values.transform(STATE, b"%02d" % number, putting(number))

    keys, gathered = store.values.keys(STATE), store.values.gather(STATE, b"", list)
    namespaces, stats = store.values.namespaces(), store.values.stats(STATE)

    assert len(await keys) == len(await gathered) == (await stats).total_keys == 20
    assert await namespaces == [STATE]


# Expiry


async def test_an_expired_entry_is_absent_to_everything_from_the_very_moment(store: Store, clock: FakeClock) -> None:
    await put(store, b"k", 1, expires_ms=clock.now_ms() + 1000)
    clock.advance(0.999)
    assert await look(store, b"k") == 1
    assert await store.values.keys(STATE) == [b"k"]

    clock.advance(0.001)
    assert await look(store, b"k") is None
    assert await store.values.keys(STATE) == []
    assert await all_items(store, STATE) == []
    assert await store.values.namespaces() == []
    assert await store.values.clear(STATE) == 0
    assert [each async for each in store.values.export()] == []
    assert await store.values.get(STATE, b"k") is None
    assert not await store.values.expire(STATE, b"k", None)
    assert await store.values.transform(STATE, b"k", lambda entry: Leave(entry)) is None


async def test_a_sweep_deletes_what_has_expired_and_nothing_else(store: Store, clock: FakeClock) -> None:
    now_ms = clock.now_ms()
    for number in range(450):  # more than a slice
        store.values.transform(STATE, b"old%03d" % number, putting(number, now_ms + 1000))
    await put(store, b"late", 1, expires_ms=now_ms + 2000)
    await put(store, b"never", 1)
    clock.advance(1)
    assert (await store.values.stats(STATE)).expired_keys == 450

    assert await store.values.sweep() == 450
    assert await store.values.sweep() == 0

    assert (await store.values.stats(STATE)).expired_keys == 0
    assert await store.values.keys(STATE) == [b"late", b"never"]


# Many keys


async def test_keys_are_found_and_cleared_by_pattern_sorted_bytewise(store: Store) -> None:
    everything = [b"", b"100%", b"USER:1", b"[a]", b"a_b", b"axb", b"user:1", b"user:12", "ü".encode(), b"\xff\0x"]
    await put(store, b"user:other", 1, namespace="scope:a")
    for pattern, found in [
        (b"*", everything),
        (b"user:?", [b"user:1"]),
        (b"*:1", [b"USER:1", b"user:1"]),
        (b"a?b", [b"a_b", b"axb"]),
        (b"[a]", [b"[a]"]),
        (b"\xff*", [b"\xff\0x"]),
        (b"*\0*", [b"\xff\0x"]),
    ]:
        for key in reversed(everything):
            await put(store, key, 1)
        assert await store.values.keys(STATE, pattern) == found
        assert await store.values.clear(STATE, pattern) == len(found)
        assert await store.values.keys(STATE) == [key for key in everything if key not in found]
    assert await look(store, b"user:other", namespace="scope:a") == 1


@pytest.mark.parametrize("namespace", [STATE, LOGGED])
async def test_very_many_entries_are_cleared_by_a_pattern(store: Store, clock: FakeClock, namespace: str) -> None:
    names = [b"user:%03d:%s" % (number, kind) for number in range(300) for kind in (b"old", b"new")]
    now_ms = clock.now_ms()
    entry = Entry(value=1, version=1, created_ms=now_ms, updated_ms=now_ms)
    everything = [PortableEntry(namespace=namespace, key=key, entry=entry) for key in [b"a", *names, b"v"]]
    await store.values.load(everything, replace=True)

    assert await store.values.clear(namespace, b"user:*:old") == 300
    assert await store.values.keys(namespace) == [b"a", *names[1::2], b"v"]
    assert await store.values.clear(namespace, b"user:*") == 300
    assert await store.values.keys(namespace) == [b"a", b"v"]
    is_kept = [len(await store.values.history(namespace, name)) for name in names]
    assert is_kept == [namespace == LOGGED] * 600


async def test_items_are_given_by_key_or_by_creation(store: Store, clock: FakeClock) -> None:
    for key in [b"b", b"c", b"a", b"\xff", b"\xff\xff"]:
        await put(store, key, key)
    await put(store, b"b", b"again")  # keeps its place
    await store.values.transform(STATE, b"c", dropping())
    await put(store, b"c", b"anew")  # loses it

    by_key = await all_items(store, STATE)
    by_creation = await all_items(store, STATE, order=Order.CREATED)

    assert [key for key, _ in by_key] == [b"a", b"b", b"c", b"\xff", b"\xff\xff"]
    assert [(key, entry.value) for key, entry in by_creation] == [
        (b"b", b"again"),
        (b"a", b"a"),
        (b"\xff", b"\xff"),
        (b"\xff\xff", b"\xff\xff"),
        (b"c", b"anew"),
    ]
    assert [key for key, _ in await all_items(store, STATE, b"\xff")] == [b"\xff", b"\xff\xff"]
    assert [key for key, _ in await all_items(store, STATE, b"b")] == [b"b"]
    for least, keys in [(b"", [b"a", b"b", b"c"]), (b"b", [b"b", b"c"]), (b"b\0", [b"c"])]:
        first = await store.values.gather(STATE, b"", lambda found: list(islice(found, 3)), least=least)
        assert [key for key, _ in first][: len(keys)] == keys


async def test_an_answer_that_would_be_too_large_is_refused(store: Store) -> None:
    for number in range(10):
        await put(store, b"%d" % number, b"x" * 1000, namespace=LOGGED)
    for _ in range(3):
        await put(store, b"0", b"y" * 1000, namespace=LOGGED)
    asked: list[Callable[[int], Awaitable[Sequence[object]]]] = [
        lambda largest: store.values.keys(LOGGED, largest=largest),
        lambda largest: store.values.gather(LOGGED, b"", list, largest=largest),
        lambda largest: store.values.gather(LOGGED, b"", list, order=Order.CREATED, largest=largest),
        lambda largest: store.values.history(LOGGED, b"0", largest=largest),
        lambda largest: store.values.namespaces(largest=largest),
    ]
    for ask, small, large in zip(asked, [9, 10_000, 10_000, 4_000, 1], [700, 13_000, 13_000, 6_000, 100], strict=True):
        with pytest.raises(TooLarge, match="larger than"):
            await ask(small)
        assert await ask(large)
    assert await store.values.gather(LOGGED, b"", lambda found: next(found)[0], largest=1200) == b"0"


@pytest.mark.parametrize("order", Order)
async def test_questions_after_one_that_was_too_large_or_took_only_the_first_see_what_is_new(
    store: Store, order: Order
) -> None:
    for number in range(5):
        await put(store, b"%d" % number, b"x" * 1000)
    held: list[object] = []
    for ask in (
        lambda: store.values.gather(STATE, b"", list, order=order, largest=2000),
        lambda: store.values.keys(STATE, largest=100),
        lambda: store.values.namespaces(largest=1),
    ):
        with pytest.raises(TooLarge) as refused:
            await ask()
        held.append(refused)
    held.append(await store.values.gather(STATE, b"", lambda found: [found, next(found)], order=order))

    await put(store, b"new", 1)

    assert len(await store.values.keys(STATE)) == len(await all_items(store, STATE)) == 6
    assert len(held) == 4


async def test_namespaces_are_those_with_a_live_entry(store: Store, clock: FakeClock) -> None:
    for namespace in ["scope:b", "scope:a", "scope:", "global", "scope:gone", "scopeless"]:
        await put(store, b"k", 1, namespace=namespace)
    await put(store, b"old", 1, namespace="scope:old", expires_ms=clock.now_ms())
    await store.values.transform("scope:gone", b"k", dropping())

    assert await store.values.namespaces("scope:") == ["scope:", "scope:a", "scope:b"]
    assert await store.values.namespaces() == ["global", "scope:", "scope:a", "scope:b", "scopeless"]
    assert await store.values.namespaces("z") == []


async def test_stats_count_one_namespace_or_all(store: Store, clock: FakeClock) -> None:
    await put(store, b"a", b"12345")
    await put(store, b"old", 1, expires_ms=clock.now_ms() + 1)
    clock.advance(1)
    await put(store, b"b", 1)
    await put(store, b"c", 1, namespace="scope:a")
    await store.locks.acquire(b"l", b"me", None, 1000)
    empty = await store.values.stats("scope:empty")

    stats, everything = await store.values.stats(STATE), await store.values.stats()

    assert (stats.total_keys, stats.expired_keys, stats.active_locks) == (2, 1, 1)
    assert stats.last_modified_ms == clock.now_ms()
    assert stats.size_bytes >= 11
    assert (everything.total_keys, everything.expired_keys) == (3, 1)
    assert (empty.total_keys, empty.size_bytes, empty.last_modified_ms) == (0, 0, None)


# History


def told(entries: list[Entry]) -> list[tuple[int, Value]]:
    return [(entry.version, entry.value) for entry in entries]


async def test_a_namespace_without_a_rule_keeps_no_history(store: Store) -> None:
    await put(store, b"k", 1)
    await put(store, b"k", 2)

    assert told(await store.values.history(STATE, b"k")) == [(2, 2)]
    assert await store.values.version(STATE, b"k", 1) is None
    assert await store.values.history(STATE, b"absent") == []


async def test_a_rule_holds_from_when_it_is_made_until_it_is_withdrawn(store: Store) -> None:
    await put(store, b"k", 1)
    store.values.keep_history({STATE: HistoryRule(versions=5)})
    await put(store, b"k", 2)
    store.values.keep_history({})
    await put(store, b"k", 3)

    assert told(await store.values.history(STATE, b"k")) == [(3, 3), (1, 1)]


async def test_past_versions_are_kept_up_to_their_number(store: Store, clock: FakeClock) -> None:
    began_ms = clock.now_ms()
    for number in range(1, 7):
        await put(store, b"k", [number], namespace=LOGGED)
        clock.advance(1)

    assert told(await store.values.history(LOGGED, b"k")) == [(6, [6]), (5, [5]), (4, [4]), (3, [3])]
    assert told(await store.values.history(LOGGED, b"k", 2)) == [(6, [6]), (5, [5])]
    assert await store.values.history(LOGGED, b"k", 0) == []
    assert await store.values.version(LOGGED, b"k", 2) is None
    assert await store.values.version(LOGGED, b"k", 4) == Entry(
        value=[4], version=4, created_ms=began_ms, updated_ms=began_ms + 3000
    )
    live = await store.values.version(LOGGED, b"k", 6)
    assert live
    assert live.value == [6]


async def test_past_versions_are_swept_at_their_age(store: Store, clock: FakeClock) -> None:
    await put(store, b"k", 1, namespace=AGED)
    await put(store, b"k", 2, namespace=AGED)
    clock.advance(1800)
    await put(store, b"k", 3, namespace=AGED)
    clock.advance(1800)

    await store.values.sweep()

    assert told(await store.values.history(AGED, b"k")) == [(3, 3), (2, 2)]


# From and to elsewhere


def item(key: bytes, value: Value, *, namespace: str = STATE, expires_ms: int | None = None) -> PortableEntry:
    entry = Entry(value=value, version=4, created_ms=10, updated_ms=20, expires_ms=expires_ms)
    return PortableEntry(namespace=namespace, key=key, entry=entry)


async def test_an_export_gives_live_entries_in_the_order_of_creation(store: Store, clock: FakeClock) -> None:
    for number in range(600):  # more than a page
        store.values.transform(STATE, b"%03d" % (599 - number), putting(number))
    await put(store, b"other", 1, namespace="scope:a")
    await put(store, b"old", 1, expires_ms=clock.now_ms())

    everything = [each async for each in store.values.export()]
    some = [each async for each in store.values.export(["scope:a", "none"])]

    assert [each.entry.value for each in everything] == [*range(600), 1]
    assert [(each.namespace, each.key) for each in some] == [("scope:a", b"other")]
    assert [each async for each in store.values.export([])] == []


async def test_an_export_tells_a_key_once_though_it_is_written_anew_meanwhile(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "PAGE_BYTES", 1)
    for key in (b"a", b"b", b"c"):
        await put(store, key, b"a page of its own")
    clock.advance(1)
    told = []
    async for each in store.values.export():
        told.append(each.key)
        if told == [b"a"]:
            for key in (b"a", b"c"):  # one that was told, one that was not
                await store.values.transform(STATE, key, dropping())
                await put(store, key, b"anew")

    assert sorted(told) == [b"a", b"b", b"c"]


async def test_loading_keeps_or_replaces_what_is_there_and_leaves_out_what_has_expired(
    store: Store, clock: FakeClock
) -> None:
    await put(store, b"a", 1)
    for number in range(6):
        await put(store, b"gone", number, expires_ms=clock.now_ms())
    items = [item(b"a", 2), item(b"b", 2), item(b"gone", 2), item(b"old", 2, expires_ms=clock.now_ms())]

    kept = await store.values.load([*items, item(b"b", 3)], replace=False)
    assert (kept.written, kept.kept, kept.expired) == (2, 2, 1), "what comes twice is kept as it came first"
    assert (await look(store, b"a"), await look(store, b"b"), await look(store, b"gone")) == (1, 2, 2)
    gone = await store.values.read(STATE, b"gone")
    assert gone
    assert gone.version == 7, "it never falls"

    replaced = await store.values.load(items, replace=True)
    assert (replaced.written, replaced.kept, replaced.expired) == (3, 0, 1)
    assert await store.values.read(STATE, b"a") == Entry(value=2, version=2, created_ms=10, updated_ms=20)


async def test_loading_is_all_or_nothing(store: Store) -> None:
    await put(store, b"a", 1)

    with pytest.raises(StoreError, match="NaN"):
        await store.values.load([item(b"a", 2), item(b"b", 2), item(b"c", math.nan)], replace=True)

    assert await store.values.keys(STATE) == [b"a"]
    assert await look(store, b"a") == 1


async def test_an_entry_that_is_loaded_keeps_its_version_or_counts_on_from_the_history_here(store: Store) -> None:
    await put(store, b"gone", 1, namespace=LOGGED)
    await put(store, b"gone", 2, namespace=LOGGED)
    await store.values.transform(LOGGED, b"gone", dropping())
    await put(store, b"a", 1, namespace=LOGGED)
    loaded = [item(key, value, namespace=LOGGED) for key, value in ((b"new", 1), (b"gone", 3), (b"a", 2))]
    await store.values.load(loaded, replace=True)

    assert told(await store.values.history(LOGGED, b"new")) == [(4, 1)]
    assert told(await store.values.history(LOGGED, b"gone")) == [(3, 3), (2, 2), (1, 1)]
    assert told(await store.values.history(LOGGED, b"a")) == [(2, 2), (1, 1)], "what it replaces is history"


@pytest.mark.parametrize("expired", ["job:a", "job:b"])
async def test_an_expired_entry_is_in_nobodys_way(store: Store, clock: FakeClock, expired: str) -> None:
    for namespace in ("job:a", "job:b"):
        expires_ms = clock.now_ms() if namespace == expired else None
        await put(store, b"k", namespace.encode(), namespace=namespace, expires_ms=expires_ms)

    await store.values.move("job:a", "job:b")

    assert await look(store, b"k", namespace="job:b") == (b"job:b" if expired == "job:a" else b"job:a")


async def test_a_namespace_moves_with_its_history(store: Store, clock: FakeClock) -> None:
    await put(store, b"a", [1], namespace=LOGGED)
    await put(store, b"a", [2], namespace=LOGGED)
    await put(store, b"b", {b"x": 1}, namespace=LOGGED)
    await put(store, b"old", 1, namespace=LOGGED, expires_ms=clock.now_ms())
    await put(store, b"a", b"expired", namespace=AGED, expires_ms=clock.now_ms())

    assert await store.values.move(LOGGED, LOGGED) == 0
    assert told(await store.values.history(LOGGED, b"a")) == [(2, [2]), (1, [1])]
    assert await store.values.move(LOGGED, AGED) == 2

    assert await store.values.keys(LOGGED) == []
    assert await store.values.history(LOGGED, b"a") == []
    assert told(await store.values.history(AGED, b"a")) == [(2, [2]), (1, [1])]
    assert await look(store, b"b", namespace=AGED) == {b"x": 1}
    assert await store.values.move("none", AGED) == 0


async def test_a_namespace_moves_over_another_only_by_force(store: Store) -> None:
    await put(store, b"a", 1, namespace="job:a")
    await put(store, b"b", 1, namespace="job:a")
    await put(store, b"b", 2, namespace="job:b")

    with pytest.raises(StoreError, match="both have the key 'b'"):
        await store.values.move("job:a", "job:b")

    assert await store.values.keys("job:a") == [b"a", b"b"]
    assert await look(store, b"b", namespace="job:b") == 2

    assert await store.values.move("job:a", "job:b", force=True) == 2
    assert await store.values.keys("job:a") == []
    assert await look(store, b"b", namespace="job:b") == 1


async def test_a_key_that_is_gone_takes_no_history_from_one_that_is_there(store: Store) -> None:
    for value in (1, 2):
        await put(store, b"a", value, namespace=LOGGED)
        await put(store, b"a", -value, namespace=AGED)
    await put(store, b"b", 1, namespace=LOGGED)
    await store.values.transform(LOGGED, b"a", dropping())

    assert await store.values.move(LOGGED, AGED) == 1

    assert told(await store.values.history(AGED, b"a")) == [(2, -2), (1, -1)]
    assert told(await store.values.history(LOGGED, b"a")) == [(2, 2), (1, 1)]
    assert told(await store.values.history(AGED, b"b")) == [(1, 1)]


# Closing


async def test_a_closed_store_refuses_everything_and_closes_again(store: Store) -> None:
    await store.values.set(STATE, b"k", b"remembered")
    await store.values.get(STATE, b"k")
    await store.close()
    await store.close()

    for asked in (
        store.values.get(STATE, b"k"),
        store.values.set(STATE, b"k", b"v"),
        store.runs.prune(keep=1, older_than_ms=0),
        store.values.read(STATE, b"k"),
        store.values.transform(STATE, b"k", putting(1)),
        store.values.keys(STATE),
        store.values.sweep(),
        store.locks.acquire(b"l", b"me", None, 1),
        store.locks.list(),
        store.events.wanted(1),
    ):
        with pytest.raises(StoreClosed):
            await asked


async def test_a_question_whose_asker_has_gone_harms_nobody(store: Store) -> None:
    write = store.values.transform(STATE, b"k", putting(1))
    asked = store.values.keys(STATE)
    asked.cancel()
    await write
    await asyncio.sleep(0)

    assert await store.values.keys(STATE) == [b"k"]


async def test_live_entries_are_counted_by_namespace(store: Store, clock: FakeClock) -> None:
    assert await store.values.counts() == {}
    await put(store, b"a", 1)
    await put(store, b"b", 1)
    await put(store, b"c", 1, expires_ms=clock.now_ms() + 1_000)
    await put(store, b"a", 1, namespace="scope:orders", expires_ms=clock.now_ms() + 1_000)
    assert await store.values.counts() == {"state": 3, "scope:orders": 1}

    clock.advance(2)
    assert await store.values.counts() == {"state": 2}
