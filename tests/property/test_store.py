"""The entries of the SQLite store against a dictionary."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import StoreError
from spyweb.store.sqlite.store import Store
from spyweb.store.sqlite.values import Values
from tests.fakes.clock import FakeClock
from tests.fakes.stores import opened

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
        async with opened("sqlite", path, clock) as store:
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


def ask(values: Values, call: Call) -> Awaitable[Result]:
    asked: Awaitable[Result] = getattr(values, call.name)(call.namespace, call.key, *call.arguments)
    return asked


async def outcome(asked: Awaitable[Result]) -> Result:
    try:
        return await asked
    except StoreError:
        return "refused"
