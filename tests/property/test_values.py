"""Typed values: the SQLite store, encrypted or not, tells the same story as the store of dictionaries."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spyweb.errors import StoreError
from spyweb.model import WRITTEN, ChangeKind, RunId
from spyweb.store.protocol import Change, Store
from spyweb.store.values_protocol import (
    KEEP,
    Drop,
    Entry,
    Keep,
    Leave,
    Order,
    Origin,
    PortableEntry,
    Put,
    Replacement,
    Transform,
    Watch,
)
from tests.fakes.changes import NEWS, PRICES, kept
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.stores import AGED, LOGGED, RULES, all_items, opened
from tests.fakes.values import values

NAMESPACES = ["state", LOGGED, AGED, ""]
WATCHES = [
    Watch(job=PRICES, namespace="scope:", is_prefix=True, key=b"*k*", kinds=WRITTEN | {ChangeKind.EXPIRED}),
    Watch(job=NEWS, namespace="state", key=b"?", kinds=frozenset({ChangeKind.DELETED})),
]


@dataclasses.dataclass(frozen=True)
class Call:
    """A method of `values` or `locks`, and what it is called with."""

    part: str
    name: str
    arguments: tuple[object, ...]


@dataclasses.dataclass(frozen=True)
class Write:
    namespace: str
    key: bytes
    decision: Put | Drop | Leave
    origin: Origin
    is_long: bool = False


@dataclasses.dataclass(frozen=True)
class Replace:
    """Without a look at what is there."""

    namespace: str
    key: bytes
    put: Put
    origin: Origin


@dataclasses.dataclass(frozen=True)
class Load:
    items: list[PortableEntry]
    replace: bool


@dataclasses.dataclass(frozen=True)
class Sweep:
    limit: int | None


@dataclasses.dataclass(frozen=True)
class HandOut:
    events: list[int]


@dataclasses.dataclass(frozen=True)
class Pass:
    """Time goes by."""

    seconds: int


Step = Call | Write | Replace | Load | Sweep | HandOut | Pass

namespaces = st.sampled_from(NAMESPACES)
keys = st.sampled_from([b"k", b"K", b"k\0", b"", b"\xff\xfe", b"ak"])
moments = st.one_of(st.none(), st.integers(START_MS - 1000, START_MS + 20_000))
expiries: st.SearchStrategy[int | Keep | None] = st.one_of(moments, st.just(KEEP))
texts = st.one_of(st.binary(max_size=3), st.just(b"7"))
patterns = st.sampled_from([b"*", b"k*", b"?", b"*k", b"k", b"\xff*", b"??"])
runs = st.integers(1, 3).map(RunId)
names, holders = st.sampled_from([b"a", b"b"]), st.sampled_from([b"me", b"you"])
decisions = st.one_of(
    st.tuples(values, expiries).map(lambda fields: Put(*fields)),
    st.tuples(values, expiries).map(lambda fields: Put(*fields)),
    st.builds(Drop, always_tell=st.booleans()),
    st.just(Leave(b"left")),
)
puts = st.tuples(values, moments, texts).map(lambda fields: Put(*fields))
origins = st.builds(Origin, run=st.one_of(st.none(), runs), depth=st.integers(0, 3))
items = st.builds(
    PortableEntry,
    namespace=namespaces,
    key=keys,
    entry=st.tuples(values, st.integers(1, 5), moments).map(
        lambda fields: Entry(value=fields[0], version=fields[1], created_ms=1, updated_ms=2, expires_ms=fields[2])
    ),
)


def call(part: str, name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.builds(Call, st.just(part), st.just(name), st.tuples(*arguments))


steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(Write, namespaces, keys, decisions, origins),
    st.builds(Write, namespaces, keys, decisions, origins, st.just(True)),
    st.builds(Replace, namespaces, keys, puts, origins),
    st.builds(Pass, st.integers(0, 5)),
    call("values", "set", namespaces, keys, texts),
    call("values", "delete", namespaces, keys),
    call("values", "increment", namespaces, keys, st.integers(0, 9), st.integers(-3, 3)),
    call("values", "expire", namespaces, keys, moments),
    call("values", "clear", namespaces, patterns),
    call("values", "move", namespaces, st.sampled_from(["moved", *NAMESPACES])),
    call("locks", "acquire", names, holders, st.one_of(st.none(), runs), st.integers(0, 4000)),
    call("locks", "release", names, holders),
    call("locks", "release_run", runs),
    call("locks", "renew", st.lists(runs, max_size=2, unique=True)),
    call("locks", "break_", names),
    st.builds(Load, st.lists(items, max_size=4), st.booleans()),
    st.builds(Sweep, st.one_of(st.none(), st.integers(0, 2))),
    st.builds(HandOut, st.lists(st.integers(1, 12), max_size=3)),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "sealed"])
@given(story=st.lists(steps, max_size=25))
def test_values_locks_and_events_are_those_of_the_store_of_dictionaries(kind: str, story: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(kind, story, Path(directory) / "spyweb.db"))


async def compare(kind: str, story: list[Step], path: Path) -> None:
    clock = FakeClock()
    async with opened(kind, path, clock, RULES) as real, opened("fake", path, clock, RULES) as model:
        for store in (real, model):
            store.events.watch(WATCHES)
        for step in story:
            if isinstance(step, Pass):
                clock.advance(step.seconds)
                continue
            assert await take(real, step) == await take(model, step), step
            assert await everything(real) == await everything(model), step


async def take(store: Store, step: Step) -> object:
    try:
        return await result_of(store, step)
    except StoreError as error:
        return str(error)


async def result_of(store: Store, step: Step) -> object:
    match step:
        case Call():
            result: object = await getattr(getattr(store, step.part), step.name)(*step.arguments)
            return result
        case Write():
            write = store.values.transform_long if step.is_long else store.values.transform
            return await write(step.namespace, step.key, deciding(step.decision), origin=step.origin)
        case Replace(namespace, key, put, origin):
            return await store.values.transform(namespace, key, Replacement(lambda: put), origin=origin)
        case Load():
            return await store.values.load(step.items, replace=step.replace)
        case Sweep():
            return await store.values.sweep(step.limit)
        case HandOut():
            return await store.runs.record(
                Change(dropped=[each for each in await store.events.wanted(100) if each.event in step.events])
            )
    return None


def deciding(decision: Put | Drop | Leave) -> Transform:
    """Gives what it was handed, too."""
    return lambda entry: replace(decision, result=entry)


async def everything(store: Store) -> list[object]:
    found: list[object] = [await store.values.namespaces(), await store.locks.list()]
    found += [repr(await kept(store)), [each async for each in store.values.export()]]
    for namespace in [*NAMESPACES, "moved"]:
        created = await all_items(store, namespace, order=Order.CREATED)
        found += [repr(created), await store.values.keys(namespace, b"*k*"), await all_items(store, namespace, b"k")]
        stats = await store.values.stats(namespace)
        found += [stats.total_keys, stats.expired_keys, stats.last_modified_ms, stats.active_locks]
        for key in [b"k", b"\xff\xfe"]:
            found += [repr(await store.values.history(namespace, key)), await store.values.read(namespace, key)]
            found += [await store.values.version(namespace, key, 2), await store.values.get(namespace, key)]
    return found
