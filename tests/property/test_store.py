"""The SQLite store against models: entries against a dictionary, runs against the store of dictionaries."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import StoreError
from spyweb.model import Cursor, Durability, Failure, JobId, Outcome, RunId, RunState
from spyweb.store.protocol import Begin, Change, End, NewRun, SkippedRange, Store
from spyweb.store.sqlite.store import open_store
from spyweb.store.values_protocol import Values
from tests.fakes.clock import FakeClock
from tests.fakes.memory.memory import MemoryStore

# Entries

Result = bytes | int | bool | str | None


class Model:
    """What a reader of the documentation expects."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._values: dict[tuple[str, bytes], bytes] = {}
        self._expiries: dict[tuple[str, bytes], int] = {}

    def get(self, namespace: str, key: bytes) -> Result:
        if self._expiries.get((namespace, key), 1 << 62) <= self._clock.now_ms():
            self._expiries.pop((namespace, key))
            self._values.pop((namespace, key))
        return self._values.get((namespace, key))

    def set(self, namespace: str, key: bytes, value: bytes) -> Result:
        self._expiries.pop((namespace, key), None)
        self._values[namespace, key] = value
        return None

    def delete(self, namespace: str, key: bytes) -> Result:
        self._expiries.pop((namespace, key), None)
        self._values.pop((namespace, key), None)
        return None

    def increment(self, namespace: str, key: bytes, default: int, delta: int) -> Result:
        value = self.get(namespace, key)
        assert not isinstance(value, str)
        total = (default if value is None else whole_number(bytes(value), default)) + delta
        if not -(2**63) <= total < 2**63:
            return "refused"
        self._values[namespace, key] = str(total).encode()
        return total

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Result:
        if self.get(namespace, key) is None:
            return False
        self._expiries.pop((namespace, key), None)
        if at_ms is not None:
            self._expiries[namespace, key] = at_ms
        return True


def whole_number(text: bytes, default: int) -> int:
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if not digits or set(digits) - set(b"0123456789"):
        return default
    number = int(text)
    return number if -(2**63) <= number < 2**63 else default


@dataclasses.dataclass(frozen=True)
class Call:
    name: str
    namespace: str
    key: bytes
    arguments: tuple[object, ...] = ()


@dataclasses.dataclass(frozen=True)
class Pass:
    """Time goes by."""

    seconds: int


@dataclasses.dataclass(frozen=True)
class Reopen:
    """The daemon stops and starts."""


namespaces = st.sampled_from(["global", "job:a", "job:b", ""])
keys = st.sampled_from([b"k", b"K", b"k\0", b"", b"\xff\xfe", b"job:a:k"])
big = st.integers(-(2**63), 2**63 - 1)
numbers = st.one_of(st.integers(-5, 5), big)
values = st.one_of(
    st.binary(max_size=20), big.map(lambda number: b"%d" % number), st.from_regex(rb"[+-]?[0-9]{1,21}", fullmatch=True)
)
START_MS = FakeClock().now_ms()
moments = st.one_of(st.none(), st.integers(START_MS - 1000, START_MS + 20_000))
calls = st.one_of(
    st.builds(Call, st.just("get"), namespaces, keys),
    st.builds(Call, st.just("set"), namespaces, keys, st.tuples(values)),
    st.builds(Call, st.just("delete"), namespaces, keys),
    st.builds(Call, st.just("increment"), namespaces, keys, st.tuples(numbers, numbers)),
    st.builds(Call, st.just("expire"), namespaces, keys, st.tuples(moments)),
)
# A get sees the writes asked for before it, and may see later ones: those of one chapter come last.
together = st.lists(calls, min_size=1, max_size=8).map(lambda asked: sorted(asked, key=lambda call: call.name == "get"))
stories = st.lists(st.one_of(together, together, st.builds(Pass, st.integers(0, 5)), st.builds(Reopen)), max_size=20)


@pytest.mark.slow
@given(stories)
def test_entries_are_those_of_a_dictionary(story: list[list[Call] | Pass | Reopen]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(live_through(story, Path(directory) / "spyweb.db"))


async def live_through(story: list[list[Call] | Pass | Reopen], path: Path) -> None:
    """Each daemon of the story ends with a Reopen."""
    clock = FakeClock()
    model = Model(clock)
    chapters = iter(story)
    more = True
    while more:
        async with opened(path, clock) as store:
            more = await live_until_reopened(store, model, clock, chapters)


async def live_until_reopened(
    store: Store, model: Model, clock: FakeClock, chapters: Iterator[list[Call] | Pass | Reopen]
) -> bool:
    """False: the story is over."""
    for chapter in chapters:
        match chapter:
            case Pass(seconds):
                clock.advance(seconds)
            case Reopen():
                return True
            case _:
                asked = [ask(store.values, call) for call in chapter]
                told = [await outcome(each) for each in asked]
                expected = [getattr(model, call.name)(call.namespace, call.key, *call.arguments) for call in chapter]
                assert told == expected
    return False


@asynccontextmanager
async def opened(path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    store = await open_store(path, clock=clock, durability=Durability.NORMAL)
    try:
        yield store
    finally:
        await store.close()


def ask(values: Values, call: Call) -> Awaitable[Result]:
    asked: Awaitable[Result] = getattr(values, call.name)(call.namespace, call.key, *call.arguments)
    return asked


async def outcome(asked: Awaitable[Result]) -> Result:
    try:
        return await asked
    except StoreError:
        return "refused"


# Runs

jobs = st.sampled_from([JobId("a"), JobId("b"), JobId("ü")])
runs = st.integers(1, 12).map(RunId)
due = st.integers(0, 9)
some_due = st.one_of(st.none(), due)
reasons = st.sampled_from(["", "down", "paused\n\0"])
new_runs = st.builds(
    NewRun,
    job=jobs,
    state=st.sampled_from([RunState.WAITING, RunState.RUNNING]),
    trigger=st.fixed_dictionaries({"type": st.just("manual"), "by": st.text(max_size=3)}),
    attempt=st.integers(1, 2),
    due_ms=some_due,
    start_after_ms=some_due,
    started_ms=some_due,
    generation=st.integers(0, 3),
)
skipped = st.builds(
    SkippedRange,
    job=jobs,
    outcome=st.sampled_from([Outcome.MISSED, Outcome.PAUSED]),
    first_due_ms=due,
    last_due_ms=due,
    count=st.integers(1, 5),
    reason=reasons,
    at_ms=due,
)
endings = st.builds(
    End,
    run=runs,
    ended_ms=due,
    outcome=st.sampled_from(list(Outcome)),
    failure=st.one_of(st.none(), st.sampled_from(list(Failure))),
    reason=reasons,
    traceback=st.text(max_size=5).filter(
        lambda text: text.isascii() or text.encode("utf-8", "replace").decode() == text
    ),
    cpu_ms=due,
    storage_errors=due,
)
cursors = st.builds(Cursor, job=jobs, due_ms=due, schedule=reasons, paused=st.booleans(), idle_since_ms=some_due)
changes = st.builds(
    Change,
    cursors=st.lists(cursors, max_size=2),
    new=st.lists(new_runs, max_size=3),
    begin=st.lists(st.builds(Begin, run=runs, started_ms=due, generation=due), max_size=2),
    end=st.lists(endings, max_size=3),
    skipped=st.lists(skipped, max_size=2),
)
prunings = st.tuples(st.integers(0, 3), due)


@pytest.mark.slow
@given(st.lists(st.one_of(changes, changes, prunings), max_size=12))
def test_runs_are_those_of_the_store_of_dictionaries(story: list[Change | tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(story, Path(directory) / "spyweb.db"))


async def compare(story: list[Change | tuple[int, int]], path: Path) -> None:
    clock = FakeClock()
    model = MemoryStore(clock)
    async with opened(path, clock) as real:
        for chapter in story:
            assert await change(real, chapter) == await change(model, chapter)
            assert await everything(real) == await everything(model)


async def change(store: Store, chapter: Change | tuple[int, int]) -> object:
    if isinstance(chapter, Change):
        return await store.runs.record(chapter)
    keep, older_than_ms = chapter
    return await store.runs.prune(keep=keep, older_than_ms=older_than_ms)


async def everything(store: Store) -> list[object]:
    return [
        await store.runs.list(limit=1000),
        await store.runs.list(JobId("ü"), limit=2, before=RunId(9)),
        await store.runs.open(),
        await store.runs.latest(),
        await store.runs.cursors(),
    ]
