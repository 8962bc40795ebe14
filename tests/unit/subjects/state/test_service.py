"""Stored values and locks, over each engine."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from msgspec import convert

from spyweb.errors import Refused, StoreError
from spyweb.model import NULL, ChangeKind, HistoryRule, JobId, RunId, Value
from spyweb.ops.resources import NAMESPACE, Expected, Kept, key_of, read_resource, to_value
from spyweb.settings.sections import StateSettings
from spyweb.store.interchange.lines import UNKNOWN_MS
from spyweb.store.model.entries import Blind, Entry, PortableEntry, Put, Replacement, Transform, Watch
from spyweb.store.sqlite.values import Values
from spyweb.subjects.state.service import (
    HEARTBEAT,
    MOST_WAITING_BYTES,
    PAGE_BYTES,
    ChangeQueue,
    StateService,
    take_page,
)
from spyweb.subjects.state.views import ChangeView, EntryDeleted, EntryWritten, Moved, UpdateOp
from tests.fakes import findings
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import opened, put, until_told

RULES = {"state": HistoryRule(versions=3)}


@pytest.fixture(params=["memory", "postgres"])
async def service(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[StateService]:
    async with opened(request.param, tmp_path / "spyweb.db", clock, RULES) as store:
        yield StateService(store=store, clock=clock, limits=StateSettings(max_value_bytes=100, max_key_bytes=10))


def item(key: bytes, value: Value = 1, *, expires_ms: int | None = None, created_ms: int = UNKNOWN_MS) -> PortableEntry:
    entry = Entry(value=value, version=1, created_ms=created_ms, updated_ms=created_ms, expires_ms=expires_ms)
    return PortableEntry(namespace="state", key=key, entry=entry)


async def keys(service: StateService, prefix: bytes = b"", limit: int | None = None) -> list[object]:
    return [entry.key async for entry in service.entries("state", prefix, limit)]


async def test_a_page_ends_with_the_entry_that_makes_it_large(service: StateService) -> None:
    large = item(b"large", b"x" * PAGE_BYTES)
    await service.store.values.load([item(b"a"), large, item(b"z")], replace=True)

    assert await keys(service) == ["a", "large", "z"]
    assert [key for key, _ in take_page(9, iter([(b"l", large.entry), (b"z", large.entry)]))] == [b"l"]


async def test_what_was_there_is_answered_but_for_a_damaged_value(
    service: StateService, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await service.put("state", b"a", 1, None) == EntryWritten(created=True, old_value=None, new_value=1)
    assert await service.put("state", b"a", [2], None) == EntryWritten(created=False, old_value=1, new_value=[2])
    assert await service.delete("state", b"a") == EntryDeleted(deleted=True, old_value=[2])
    assert await service.delete("state", b"a") == EntryDeleted(deleted=False, old_value=None)

    await service.put("state", b"a", 1, None)
    transform = type(service.store.values).transform

    def damaged(values: Values, namespace: str, key: bytes, change: Transform) -> Future[object]:
        if isinstance(change, Blind):
            return transform(values, namespace, key, change)
        raise StoreError("the value is damaged")

    monkeypatch.setattr(type(service.store.values), "transform", damaged)
    assert await service.put("state", b"a", 2, None) == EntryWritten(created=False, old_value=None, new_value=2)
    assert await service.delete("state", b"a") == EntryDeleted(deleted=True, old_value=None)


async def test_only_a_scope_keeps_null(service: StateService) -> None:
    assert (await service.put("scope:s", b"a", NULL, None)).created
    for namespace in ("state", "state@web", "global", "job:a"):
        with pytest.raises(Refused, match="a: only a scope can keep JSON's null"):
            await service.put(namespace, b"a", NULL, None)
        assert await service.entry(namespace, b"a") is None


def op(kind: str, **fields: object) -> UpdateOp:
    return convert({"type": kind, **fields}, UpdateOp)


async def test_an_update_does_its_ops_as_one_step_and_keeps_the_expiry(service: StateService, clock: FakeClock) -> None:
    await service.put("scope:s", b"a", {b"n": 1}, 9_000)
    ops = [op("increment", path="n", by=2), op("set", path="t", value="x"), op("append", path=["l", "m"], value=None)]
    updated = await service.update("scope:s", b"a", ops)
    assert updated.old_value == {"n": 1}
    assert updated.new_value == {"n": 3, "t": "x", "l": {"m": [None]}}
    assert updated.errors == []
    entry = await service.entry("scope:s", b"a")
    assert entry is not None
    assert (entry.value, entry.expires_ms) == (updated.new_value, clock.now_ms() + 9_000)


async def test_an_op_that_can_not_be_done_is_reported_and_the_others_are_done(service: StateService) -> None:
    await service.put("state", b"a", {b"t": b"x"}, None)
    updated = await service.update("state", b"a", [op("increment", path="t", by=1), op("set", path="n", value=1)])
    assert updated.new_value == {"t": "x", "n": 1}
    assert [(each.op_index, each.code) for each in updated.errors] == [(0, "increment.not_number")]


@pytest.mark.parametrize(
    ("namespace", "ops", "reason"),
    [
        ("global", [op("set", value=1)], "only a scope and `state`"),
        ("job:x", [op("set", value=1)], "only a scope and `state`"),
        ("state", [op("set", path="a", value="x" * 200)], "over the limit of 100"),
        ("state", [op("remove")], "only a scope can keep JSON's null"),
        ("state", [op("set", path=["a", "b"], value=1)], "ops[0].path"),
        ("state", [op("set", value={"$base64": "?"})], "ops[0].value: has a $base64"),
        ("state", [op("increment", by=1 << 63)], "ops[0].by"),
    ],
)
async def test_an_update_that_is_refused_changes_nothing(
    service: StateService, namespace: str, ops: list[UpdateOp], reason: str
) -> None:
    with pytest.raises(Refused) as refused:
        await service.update(namespace, b"a", ops)
    assert reason in str(refused.value)
    assert await service.entry(namespace, b"a") is None


@pytest.mark.parametrize("namespace", ["global", "job:prices"])
async def test_what_store_set_keeps_without_a_limit_is_imported_again(service: StateService, namespace: str) -> None:
    key, value = b"k" * 11, b"x" * 101
    await service.store.values.set(namespace, key, value)
    exported = [each async for each in service.export(None)]
    await service.clear(namespace, b"*")

    assert (await service.load(exported, dry_run=False)).added == 1
    assert not (await service.put(namespace, key, value, None)).created


async def test_a_rollback_is_a_new_version_without_expiry_also_of_what_was_deleted(service: StateService) -> None:
    await service.put("state", b"a", [1], 5_000)
    await service.put("state", b"a", [2], 5_000)
    assert not (await service.rollback("state", b"a", 1)).created
    found = await service.entry("state", b"a")
    assert found is not None
    assert (found.value, found.version, found.expires_ms) == ([1], 3, None)

    await service.delete("state", b"a")
    assert (await service.rollback("state", b"a", 1)).created
    assert [entry.version for entry in await service.history("state", b"a", None)] == [4, 3, 2, 1]


async def test_moments_that_a_line_left_out_are_now(service: StateService) -> None:
    await service.load([item(b"a"), item(b"b", created_ms=5)], dry_run=False)
    found = [entry async for entry in service.entries("state", b"", None)]
    assert [(entry.created_ms, entry.updated_ms) for entry in found] == [(START_MS, START_MS), (5, 5)]


async def test_the_records_of_a_job_move_with_its_keys_and_are_no_news_to_it(service: StateService) -> None:
    found, tea, cup = service.store.records, findings.item("tea"), findings.item("cup")
    await found.add(JobId("a"), [tea, cup])
    assert await service.move("job:a", "job:b") == Moved(moved=0, records=2)
    assert await found.add(JobId("b"), [tea, cup]) == [None, None]
    assert await service.move("state", "job:b") == Moved(moved=0, records=0)


async def test_what_a_job_keeps_in_a_state_moves_with_its_keys(service: StateService) -> None:
    service = replace(service, limits=StateSettings())
    for job, target, run in [("a", "x", 1), ("a", "y", 1), ("b", "y", 2), ("ab", "z", 3)]:
        kept = Kept(module="file.copy", target=target, expected=Expected.FILE, checksum="0")
        value = to_value(kept, START_MS, RunId(run), 1)
        put = Replacement(partial(Put, value, START_MS + 9))
        await service.store.values.transform(NAMESPACE, key_of(JobId(job), kept, 512), put)
    await service.put(NAMESPACE, b"a:file.copy:bad", 1, None)
    assert await service.move("job:*", "job:c") == Moved(moved=0, records=0)
    assert await service.move("job:a", "job:b") == Moved(moved=1, records=0)
    found = {str(entry.key): entry async for entry in service.entries(NAMESPACE, b"", None)}
    assert sorted(found) == ["a:file.copy:bad", "ab:file.copy:z", "b:file.copy:x", "b:file.copy:y"]
    assert found["b:file.copy:x"].expires_ms == START_MS + 9
    left = await service.store.values.gather(NAMESPACE, b"b:file.copy:y", list)
    assert read_resource(left[0][0], left[0][1].value).run == 2  # what it has kept itself is newer


async def test_a_key_of_store_set_has_a_limit_of_its_own(service: StateService) -> None:
    assert (await service.put("global", b"k" * 4096, b"v", None)).created
    with pytest.raises(Refused, match="the key of 4097 bytes is over the limit of 4096"):
        await service.put("global", b"k" * 4097, b"v", None)


async def test_a_value_is_written_over_the_version_that_was_seen_only(service: StateService) -> None:
    assert (await service.put("state", b"k", b"1", None, version=0)).created
    assert not (await service.put("state", b"k", b"2", None, version=1)).created
    for version in (0, 1, 3):
        with pytest.raises(Refused, match="it was changed meanwhile"):
            await service.put("state", b"k", b"3", None, version=version)
    found = await service.entry("state", b"k")
    assert found
    assert (found.value, found.version) == ("2", 2)


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


@asynccontextmanager
async def watched(
    store: MemoryStore, clock: FakeClock, namespace: str | None = None
) -> AsyncIterator[AsyncGenerator[ChangeView | None, None]]:
    """Watch all keys, of one namespace or of all, once it has been said that the watch has begun."""
    service = StateService(store=store, clock=clock, limits=StateSettings())
    async with aclosing(service.watch(namespace, b"*")) as changes:
        assert await anext(changes) is None
        yield changes


def shown(change: ChangeView | None) -> str:
    return f"{change.kind} {change.namespace} {change.key}" if change else "alive"


async def next_of(changes: AsyncGenerator[ChangeView | None, None]) -> str:
    return shown(await anext(changes))


async def test_one_namespace_is_not_another_that_begins_like_it(clock: FakeClock, store: MemoryStore) -> None:
    async with watched(store, clock, "state") as changes:
        await put(store, b"a", 1, namespace="state@prod")
        await put(store, b"b", 1)
        assert shown(await anext(changes)) == "created state b"


async def test_a_quiet_watch_gives_signs_of_life(clock: FakeClock, store: MemoryStore) -> None:
    async with watched(store, clock) as changes, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(next_of(changes))
        await clock.turn(HEARTBEAT - 1)
        assert not waiting.done()
        await clock.turn(1)
        assert waiting.result() == "alive"


async def test_who_reads_too_slowly_is_let_go(
    clock: FakeClock, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spyweb.subjects.state.service.MOST_WAITING", 9)
    async with watched(store, clock) as changes:
        for _ in range(9 + 1):
            await put(store, b"a", 1)
        await until_told()
        with pytest.raises(Refused, match="faster than they are read"):
            await anext(changes)


async def test_nothing_is_kept_for_who_is_late(clock: FakeClock, store: MemoryStore) -> None:
    changes = ChangeQueue()
    wanted = Watch(namespace="state", is_prefix=False, key=b"*", kinds=frozenset(ChangeKind))
    store.events.follow(wanted, changes.hear)
    for number in range(20):
        await put(store, b"%d" % number, b"x" * (MOST_WAITING_BYTES // 5))
        await until_told()
        assert changes.size <= MOST_WAITING_BYTES
    assert changes.is_late
    assert (changes.size, changes.waiting.qsize()) == (0, 1)


async def test_who_reads_large_values_too_slowly_is_let_go_sooner(clock: FakeClock, store: MemoryStore) -> None:
    async with watched(store, clock) as changes:
        for number in range(5):
            await put(store, b"%d" % number, b"x" * (MOST_WAITING_BYTES - 10))  # and 10 for the key and no value
            await until_told()
            assert shown(await anext(changes)) == f"created state {number}"
        for number in range(5, 7):
            await put(store, b"%d" % number, b"x" * (MOST_WAITING_BYTES // 2))
        await until_told()
        with pytest.raises(Refused, match="faster than they are read"):
            await anext(changes)


async def test_who_has_gone_is_told_nothing(clock: FakeClock, store: MemoryStore) -> None:
    async with watched(store, clock):
        pass
    await put(store, b"a", 1)
    assert clock.pending == 0
