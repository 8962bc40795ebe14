"""The entries of the SQLite store against a dictionary, whatever is asked for at once, and whenever it is reopened."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import StoreError
from tests.fakes.clock import FakeClock
from tests.fakes.stores import opened

Place = tuple[str, bytes]
Model = dict[Place, tuple[bytes, int | None]]  # values, each with its expiry
Call = tuple[str, Place, tuple[Any, ...]]

START_MS = FakeClock().now_ms()

places = st.tuples(
    st.sampled_from(["job:a", ""]), st.sampled_from([b"k", b"k\0", b"\xff\xfe"])
)  # few, so that calls meet
big = st.integers(-(2**63), 2**63 - 1)
numbers = st.one_of(st.integers(-5, 5), big)
values = st.one_of(
    st.binary(max_size=20), big.map(lambda number: b"%d" % number), st.from_regex(rb"[+-]?[0-9]{1,21}", fullmatch=True)
)
moments = st.one_of(st.none(), st.integers(START_MS - 1000, START_MS + 8_000))
arguments = {
    "get": st.just(()),
    "set": st.tuples(values),
    "delete": st.just(()),
    "increment": st.tuples(numbers, numbers),
    "expire": st.tuples(moments),
}
calls = st.one_of(*(st.tuples(st.just(name), places, given) for name, given in arguments.items()))
# A get sees the writes asked for before it, and may see later ones: those of one chapter come last.
together = st.lists(calls, min_size=1, max_size=8).map(lambda asked: sorted(asked, key=lambda call: call[0] == "get"))
passing = st.integers(0, 5)  # seconds
reopening = st.none()
stories = st.lists(st.one_of(together, together, passing, reopening), max_size=20)


def expected(model: Model, now_ms: int, call: Call) -> Any:
    """Return what a reader of the documentation expects, and note it in the model."""
    name, place, given = call
    value, expires_ms = model.pop(place, (None, None))
    if expires_ms is not None and expires_ms <= now_ms:
        value, expires_ms = None, None
    answer: Any = value if name == "get" else None
    match name:
        case "set":
            value, expires_ms = given[0], None
        case "delete":
            value = None
        case "expire":
            answer, expires_ms = value is not None, given[0]
        case "increment":
            answer = sum_of(value, *given)
            value = value if answer == "refused" else b"%d" % answer
    if value is not None:
        model[place] = (value, expires_ms)
    return answer


def sum_of(value: bytes | None, default: int, delta: int) -> Any:
    total = (default if value is None else whole_number(value, default)) + delta
    return total if -(2**63) <= total < 2**63 else "refused"


def whole_number(text: bytes, default: int) -> int:
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if not digits or set(digits) - set(b"0123456789"):
        return default
    number = int(text)
    return number if -(2**63) <= number < 2**63 else default


@pytest.mark.slow
@given(stories)
def test_entries_are_those_of_a_dictionary(story: list[list[Call] | int | None]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(live_through(story, Path(directory) / "spyweb.db"))


async def live_through(story: list[list[Call] | int | None], path: Path) -> None:
    clock, model, chapters = FakeClock(), Model(), iter([*story, "the end"])
    chapter: object = None
    while chapter is None:  # the daemon stops and starts
        async with opened("sqlite", path, clock) as store:
            while isinstance(chapter := next(chapters), list | int):
                if isinstance(chapter, int):
                    clock.advance(chapter)
                    continue
                asked = [getattr(store.values, name)(*place, *given) for name, place, given in chapter]
                told = await asyncio.gather(*asked, return_exceptions=True)
                assert ["refused" if isinstance(each, StoreError) else each for each in told] == [
                    expected(model, clock.now_ms(), call) for call in chapter
                ]
