"""What a write costs: one statement and no savepoint, unless something beside the entry is written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest

from spyweb.errors import StoreError
from spyweb.model import Value
from spyweb.store.protocol import Change
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.store import SqliteStore, open_store
from spyweb.store.values_protocol import Addition, Blind, ChangeEvent, Drop, Entry, Leave, Put, Watch
from tests.fakes.changes import PRICES, kept, make_end, start_run
from tests.fakes.clock import FakeClock
from tests.fakes.stores import LOGGED, RULES, adding, all_items, counting, look, put, until_told


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    store = await open_store(tmp_path / "spyweb.db", clock=clock, history=RULES)
    yield store
    await store.close()


async def trace(store: SqliteStore) -> list[str]:
    """The statements that the writer runs from now on, by their first two words."""
    seen: list[str] = []

    def note(statement: str) -> None:
        if "last_commit" not in statement:  # as each commit does
            seen.append(" ".join(statement.split()[:2]))

    await store._connections.writer.submit(OpKind.READ, lambda connection: connection.set_trace_callback(note))
    return seen


def words(seen: list[str]) -> list[str]:
    return [statement for statement in seen if not statement.startswith(("BEGIN", "COMMIT"))]


async def test_a_plain_transform_reads_and_writes_once(store: SqliteStore) -> None:
    await put(store, b"k", 1)
    seen = await trace(store)

    first, second = (store.values.transform("state", b"k", adding(1)) for _ in range(2))
    await first
    await second

    assert words(seen) == ["SELECT type,", "UPDATE entry"] * 2


async def test_counting_is_two_statements_and_no_rule(store: SqliteStore) -> None:
    await put(store, b"k", 1)
    seen = await trace(store)

    assert await store.values.transform("state", b"k", Addition(2, str, refusing)) == "3"

    assert words(seen) == ["SELECT type,", "UPDATE entry"]


def refusing(entry: Entry | None) -> Leave:
    return Leave("the rule")


LARGEST = 2**63 - 1


@pytest.mark.parametrize("before", [None, b"1", 1.5, True, [], LARGEST])
async def test_what_is_no_integer_or_would_leave_64_bits_is_the_rules_affair(store: SqliteStore, before: Value) -> None:
    if before is not None:
        await put(store, b"k", before)

    assert await store.values.transform("state", b"k", Addition(1, str, refusing)) == "the rule"
    assert await look(store, b"k") == before


async def test_counting_keeps_expiry_and_creation_and_raises_the_version(store: SqliteStore, clock: FakeClock) -> None:
    until_ms = clock.now_ms() + 2000
    await put(store, b"k", 1, expires_ms=until_ms)
    created_ms = clock.now_ms()
    clock.advance(1)
    assert await store.values.transform("state", b"k", counting(1)) == 2

    entry = await store.values.read("state", b"k")
    assert entry == Entry(value=2, version=2, created_ms=created_ms, updated_ms=created_ms + 1000, expires_ms=until_ms)

    clock.advance(1)
    assert await store.values.transform("state", b"k", counting(1)) == 1


async def test_counting_leaves_a_trail_where_one_is_wanted(store: SqliteStore) -> None:
    await put(store, b"k", 1, namespace=LOGGED)
    await store.values.transform(LOGGED, b"k", counting(1))

    assert [entry.value for entry in await store.values.history(LOGGED, b"k")] == [2, 1]


async def test_a_transform_that_leaves_a_trail_has_a_savepoint(store: SqliteStore) -> None:
    store.events.watch([Watch(job=PRICES, namespace=LOGGED)])
    await put(store, b"k", 1, namespace=LOGGED)
    seen = await trace(store)

    first, second = (store.values.transform(LOGGED, b"k", adding(1)) for _ in range(2))
    await first
    await second

    assert words(seen)[:8] == [
        "SAVEPOINT op",
        "SELECT type,",
        "UPDATE entry",
        "REPLACE INTO",
        "DELETE FROM",
        "INSERT INTO",
        "INSERT OR",
        "RELEASE op",
    ]


async def test_only_the_end_of_a_run_that_took_a_lock_looks_for_locks(store: SqliteStore) -> None:
    plain, holding = await start_run(store, due_ms=1), await start_run(store, due_ms=2)
    await store.locks.acquire(b"l", b"me", holding, 1000)
    seen = await trace(store)

    await store.runs.record(Change(end=[make_end(plain)]))
    assert words(seen) == ["UPDATE run"]
    seen.clear()

    await store.runs.record(Change(end=[make_end(holding)]))
    assert "DELETE FROM" in words(seen)
    await until_told()
    seen.clear()

    await store.runs.record(Change(end=[make_end(holding)]))
    assert words(seen) == ["UPDATE run"]


async def damage(store: SqliteStore, namespace: str, key: bytes) -> None:
    """As a disk may."""
    statement = "UPDATE entry SET type = 'j', value = '{' WHERE namespace = ? AND key = ?"
    await store._connections.writer.submit(
        OpKind.WRITE, lambda connection: connection.execute(statement, (namespace, key))
    )


async def test_a_damaged_value_is_told_with_its_key_and_can_be_written_over_and_deleted(store: SqliteStore) -> None:
    for key in (b"a", b"b", b"c", b"d"):
        await put(store, key, {b"x": 1})
        await damage(store, "state", key)
    with pytest.raises(StoreError, match="the value of b'a' in state can't be read"):
        await store.values.read("state", b"a")
    with pytest.raises(StoreError, match="the value of b'a' in state can't be read"):
        await store.values.get("state", b"a")

    await put(store, b"a", 1)
    assert await store.values.transform("state", b"b", Blind(lambda is_there: Drop(is_there)))
    assert await store.values.transform("state", b"c", Blind(lambda is_there: Put(2, None, is_there)))
    await store.values.delete("state", b"d")

    assert [(key, entry.value) for key, entry in await all_items(store, "state")] == [(b"a", 1), (b"c", 2)]


async def test_a_change_of_a_damaged_value_is_told_without_it_and_holds_up_no_other(store: SqliteStore) -> None:
    heard: list[ChangeEvent] = []
    store.events.watch([Watch(job=PRICES, namespace=LOGGED)])
    store.events.follow(Watch(namespace=LOGGED), heard.append)
    await put(store, b"a", [1], namespace=LOGGED)
    await damage(store, LOGGED, b"a")
    await put(store, b"a", 2, namespace=LOGGED)
    await put(store, b"b", 3, namespace=LOGGED)
    await until_told()

    changes = [(b"a", None, [1]), (b"a", None, 2), (b"b", None, 3)]
    assert [(event.key, event.old, event.new) for event in heard] == changes
    assert [(event.key, event.old, event.new) for event in await kept(store)] == changes


PATIENCE = 5  # seconds, which pass only where a test fails


class Interrupted:
    """A transform that adds 1, and before its decisions lets these things happen, one before each."""

    def __init__(self, *events: Callable[[], Coroutine[None, None, object]]) -> None:
        self._events = list(events)
        self._loop = asyncio.get_running_loop()
        self.seen: list[Value] = []
        self.threads: list[int] = []

    def __call__(self, entry: Entry | None) -> Put:
        self.seen.append(entry.value if entry else None)
        self.threads.append(threading.get_ident())
        if self._events:
            asyncio.run_coroutine_threadsafe(self._events.pop(0)(), self._loop).result(PATIENCE)
        return adding(1)(entry)  # type: ignore[return-value]


async def test_others_write_while_a_long_change_is_decided(store: SqliteStore) -> None:
    await put(store, b"k", 1)
    change = Interrupted(lambda: put(store, b"other", 2))

    assert await store.values.transform_long("state", b"k", change) == 2

    assert (await look(store, b"k"), await look(store, b"other")) == (2, 2)
    assert change.seen == [1]


async def test_a_write_between_a_long_changes_read_and_its_write_is_not_lost(store: SqliteStore) -> None:
    await put(store, b"k", 1)
    change = Interrupted(lambda: put(store, b"k", 10))

    assert await store.values.transform_long("state", b"k", change) == 11

    assert change.seen == [1, 10]
    entry = await store.values.read("state", b"k")
    assert entry is not None
    assert (entry.value, entry.version) == (11, 3)


async def test_an_entry_made_anew_meanwhile_is_another_though_its_version_and_times_are_the_same(
    store: SqliteStore,
) -> None:
    await put(store, b"k", 1)

    async def make_anew() -> None:
        await store.values.delete("state", b"k")
        await put(store, b"k", 10)

    assert await store.values.transform_long("state", b"k", Interrupted(make_anew)) == 11


async def test_a_long_change_that_was_refused_twice_is_made_in_one_step(store: SqliteStore) -> None:
    change = Interrupted(*(lambda: put(store, b"k", 10) for _ in range(2)))

    assert await store.values.transform_long("state", b"k", change) == 11

    assert change.seen == [None, 10, 10]
    writer = await store._connections.writer.submit(OpKind.READ, lambda _: threading.get_ident())
    assert [thread == writer for thread in change.threads] == [False, False, True]


async def test_long_changes_of_one_key_do_not_refuse_each_other(store: SqliteStore) -> None:
    changes = [Interrupted() for _ in range(5)]
    sums = await asyncio.gather(*(store.values.transform_long("state", b"k", change) for change in changes))

    assert sums == [1, 2, 3, 4, 5]
    assert [len(change.seen) for change in changes] == [1] * 5


async def test_a_long_change_that_finds_no_memory_fails_alone(store: SqliteStore) -> None:
    def take_all(entry: Entry | None) -> Leave:
        raise MemoryError

    with pytest.raises(StoreError, match="out of memory"):
        await store.values.transform_long("state", b"k", take_all)
    assert await store.values.transform_long("state", b"k", adding(1)) == 1


async def test_watchers_that_come_while_a_long_change_is_decided_hear_of_it(store: SqliteStore) -> None:
    heard: list[ChangeEvent] = []

    async def follow() -> None:
        store.events.follow(Watch(namespace=LOGGED), heard.append)
        store.events.watch([Watch(job=PRICES, namespace=LOGGED)])

    await put(store, b"k", 1, namespace=LOGGED)
    assert await store.values.transform_long(LOGGED, b"k", Interrupted(follow)) == 2
    await until_told()

    assert [(event.old, event.new) for event in heard] == [(1, 2)]
    assert [(event.old, event.new) for event in await kept(store)] == [(1, 2)]
