"""What is known of entries without asking SQLite, and when it is known no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.errors import StoreClosed, StoreError
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.pending_writes import EVERYTHING, KNOWN_KEY, KNOWN_VALUE, MOST_KNOWN, PendingWrites
from spyweb.store.sqlite.store import SqliteStore, open_store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import putting
from tests.fakes.tables import Gate


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    store = await open_store(tmp_path / "spyweb.db", clock=clock)
    yield store
    await store.close()


def knows(subjects: PendingWrites, key: bytes) -> bytes | None:
    known = subjects.known("a", key)
    return known.value if known and known.is_filled else None


@pytest.mark.parametrize("subject", [("a", b"k"), "a", "another", EVERYTHING])
def test_what_is_known_is_forgotten_when_a_write_is_asked_for(subject: object) -> None:
    subjects = PendingWrites()
    subjects.put(("a", b"k"), b"v")
    assert knows(subjects, b"k") == b"v"
    subjects.begin(subject)
    assert knows(subjects, b"k") is None


@pytest.mark.parametrize("subject", [("a", b"k"), "a", "another", EVERYTHING])
def test_a_count_is_begun_anew_after_another_write(subject: object) -> None:
    subjects = PendingWrites()
    count = subjects.begin_addition(("a", b"k"))
    assert subjects.begin_addition(("a", b"k")) is count
    subjects.begin(subject)
    assert subjects.begin_addition(("a", b"k")) is not count


def test_the_oldest_counts_are_forgotten_and_all_that_a_refused_write_had_seen() -> None:
    subjects = PendingWrites()
    counts = [subjects.begin_addition(("a", b"%d" % number)) for number in range(MOST_KNOWN + 1)]
    assert subjects.begin_addition(("a", b"%d" % MOST_KNOWN)) is counts[-1]
    assert subjects.begin_addition(("a", b"0")) is not counts[0]
    subjects.begin(("a", b"other"))
    subjects.end(("a", b"other"), is_committed=False)
    assert subjects.begin_addition(("a", b"%d" % MOST_KNOWN)) is not counts[-1]


def test_what_an_addition_makes_of_an_entry_is_not_known_as_a_text() -> None:
    subjects = PendingWrites()
    subjects.put(("a", b"k"), b"1")
    subjects.begin_addition(("a", b"k"))
    assert subjects.is_written("a", b"k")
    subjects.end(("a", b"k"), is_committed=True)
    assert knows(subjects, b"k") is None


def test_a_write_of_one_entry_leaves_the_others_known() -> None:
    subjects = PendingWrites()
    subjects.put(("a", b"k"), b"v")
    subjects.begin(("a", b"other"))
    assert knows(subjects, b"k") == b"v"


def test_what_a_read_brings_after_a_write_was_asked_for_is_not_known() -> None:
    subjects = PendingWrites()
    reading = subjects.known("a", b"k")
    assert reading
    subjects.begin(("a", b"k"))
    assert subjects.known("a", b"k") is None, "it is being written"
    reading.fill(b"old")
    subjects.end(("a", b"k"), is_committed=True)
    assert knows(subjects, b"k") is None


def test_an_entry_is_written_until_the_last_write_has_ended() -> None:
    subjects = PendingWrites()
    for _ in range(2):
        subjects.begin(("a", b"k"))
    subjects.end(("a", b"k"), is_committed=True)
    assert subjects.is_written("a", b"k")
    subjects.end(("a", b"k"), is_committed=True)
    assert not subjects.is_written("a", b"k")


@pytest.mark.parametrize("subject", ["a", EVERYTHING])
def test_an_entry_is_written_with_its_namespace_and_with_all(subject: object) -> None:
    subjects = PendingWrites()
    subjects.begin(subject)
    assert subjects.is_written("a", b"k")


def test_a_write_that_was_not_committed_leaves_nothing_known() -> None:
    subjects = PendingWrites()
    subjects.begin(("a", b"k"))
    subjects.put(("a", b"k"), b"never")
    subjects.end(("a", b"k"), is_committed=False)
    assert knows(subjects, b"k") is None


def test_large_values_are_not_known_and_the_oldest_are_forgotten() -> None:
    subjects = PendingWrites()
    subjects.put(("a", b"large"), bytes(KNOWN_VALUE + 1))
    assert knows(subjects, b"large") is None
    held = subjects.known("a", b"large")
    assert held
    assert held.value is None, "it is not held either"
    for number in range(MOST_KNOWN + 1):
        subjects.put(("a", b"%d" % number), b"v")
    assert knows(subjects, b"%d" % MOST_KNOWN) == b"v"
    assert knows(subjects, b"0") is None


LONG = b"k" * (KNOWN_KEY + 1)


def test_what_has_a_long_key_is_not_known() -> None:
    subjects = PendingWrites()
    subjects.put(("a", LONG), b"v")
    assert knows(subjects, LONG) is None
    reading = subjects.known("a", LONG)
    assert reading
    reading.fill(b"v")
    assert knows(subjects, LONG) is None
    assert subjects.begin_addition(("a", LONG)) is not subjects.begin_addition(("a", LONG))


@pytest.mark.parametrize("subject", [("a", LONG), "a", EVERYTHING])
def test_a_long_key_is_written_as_any_other(subject: object) -> None:
    subjects = PendingWrites()
    subjects.begin(("a", b"short"))
    assert not subjects.is_written("a", LONG)
    subjects.begin(subject)
    assert subjects.is_written("a", LONG)
    subjects.end(subject, is_committed=True)
    assert not subjects.is_written("a", LONG)


async def test_a_read_of_a_long_key_sees_the_write_before_it(store: SqliteStore) -> None:
    written = store.entries.set("a", LONG, b"v")
    assert await store.entries.get("a", LONG) == b"v"
    assert written.done()
    await store.entries.delete("a", LONG)
    assert await store.entries.get("a", LONG) is None


async def test_a_value_that_was_put_or_read_is_there_at_once(store: SqliteStore) -> None:
    await store.entries.set("a", b"k", b"v")
    assert store.entries.get("a", b"k").done()
    assert await store.entries.get("a", b"none") is None
    again = store.entries.get("a", b"none")
    assert again.done()
    assert again.result() is None


async def test_a_read_waits_for_the_commit_of_what_was_put_before(store: SqliteStore) -> None:
    gate = Gate()
    held = store._connections.writer.submit(OpKind.WRITE, gate.hold)
    await asyncio.to_thread(gate.wait_until_entered)
    store.entries.set("a", b"k", b"v")
    reading = store.entries.get("a", b"k")
    await asyncio.sleep(0)
    assert not reading.done()
    gate.open()
    await held
    assert await reading == b"v"


async def test_other_writes_of_a_known_entry_are_seen(store: SqliteStore, clock: FakeClock) -> None:
    await store.entries.set("a", b"k", b"1")
    await store.values.transform("a", b"k", putting(2))
    assert await store.entries.get("a", b"k") == b"2"
    await store.entries.increment("a", b"k", 0, 1)
    assert await store.entries.get("a", b"k") == b"3"
    await store.values.move("a", "b")
    assert await store.entries.get("a", b"k") is None
    assert await store.entries.get("b", b"k") == b"3"
    await store.values.clear("b")
    assert await store.entries.get("b", b"k") is None


async def test_an_entry_that_expires_is_read_each_time(store: SqliteStore, clock: FakeClock) -> None:
    await store.entries.set("a", b"k", b"v")
    await store.entries.expire("a", b"k", clock.now_ms() + 1000)
    assert await store.entries.get("a", b"k") == b"v"
    clock.advance(2)
    assert await store.entries.get("a", b"k") is None


async def test_a_write_that_fails_is_not_known(store: SqliteStore) -> None:
    await store.entries.set("a", b"k", b"v")
    await store._connections.writer.submit(
        OpKind.READ, lambda connection: connection.execute("PRAGMA query_only = ON").close()
    )
    with pytest.raises(StoreError):
        await store.entries.set("a", b"k", b"never")
    assert await store.entries.get("a", b"k") == b"v"


async def test_a_closed_store_knows_nothing_new(store: SqliteStore) -> None:
    await store.entries.set("a", b"k", b"v")
    await store.close()
    with pytest.raises(StoreClosed):
        await store.entries.set("a", b"k", b"v")
    with pytest.raises(StoreClosed):
        await store.entries.get("a", b"k")
