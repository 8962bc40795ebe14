"""The laws of update ops: all of them at once are each of them by itself, and nothing that they were given changes.

Applied beside what others write, they give what they would have given after it, in one step.
"""

from __future__ import annotations

import asyncio
import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import NULL, Value
from spyweb.ops.rules.updates import Update, UpdateKind, apply
from spyweb.store.protocol import Store
from spyweb.store.values_protocol import KEEP, Drop, Entry, Put
from tests.fakes.clock import FakeClock
from tests.fakes.stores import LOGGED, RULES, opened

NAMES = [b"a", b"b", b"1"]
texts = st.sampled_from([b"", b"x", b"text"])
scalars = st.one_of(texts, st.booleans(), st.integers(-3, 3), st.just(NULL))
values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.sampled_from(NAMES), st.just(1)), inner, max_size=3)
    ),
    max_leaves=8,
)
paths = st.lists(st.sampled_from(NAMES), max_size=3).map(tuple)


@st.composite
def updates(draw: st.DrawFn) -> Update:
    if draw(st.booleans()):
        return Update(kind=UpdateKind.APPEND, path=draw(paths), value=draw(texts))
    kind = draw(st.sampled_from(UpdateKind))
    return Update(kind=kind, path=draw(paths), value=draw(values), by=draw(st.integers(-2, 2)))


@given(values, st.lists(updates(), max_size=12))
def test_many_ops_are_one_after_another_and_change_nothing_that_was_given(root: Value, given: list[Update]) -> None:
    before = copy.deepcopy((root, given))

    together = apply(root, given)

    each, codes = root, []
    for update in given:
        step = apply(each, [update])
        each = step.value
        codes += [problem.code for problem in step.problems]
    assert repr(together.value) == repr(each)
    assert [problem.code for problem in together.problems] == codes
    assert (root, given) == before


PATIENCE = 5  # seconds, which pass only where the test fails

writes = st.lists(st.one_of(values.map(Put), st.just(Drop())), max_size=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "sealed", "memory"])
@given(before=writes, meanwhile=st.lists(writes, max_size=3), ops=st.lists(updates(), max_size=4))
def test_ops_applied_beside_other_writes_are_as_if_they_came_after_them_in_one_step(
    kind: str, before: list[Put | Drop], meanwhile: list[list[Put | Drop]], ops: list[Update]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(kind, Path(directory), before, meanwhile, ops))


async def compare(
    kind: str, folder: Path, before: list[Put | Drop], meanwhile: list[list[Put | Drop]], ops: list[Update]
) -> None:
    loop, clock = asyncio.get_running_loop(), FakeClock()
    written: list[Put | Drop] = []

    def change(entry: Entry | None) -> Put:
        updated = apply(entry.value if entry else None, ops)
        return Put(updated.value, KEEP, repr((entry, updated)))

    def interrupted(entry: Entry | None) -> Put:
        if tries and (now := tries.pop(0)):
            written.extend(now)
            asyncio.run_coroutine_threadsafe(write_all(beside, now), loop).result(PATIENCE)
        return change(entry)

    async with (
        opened(kind, folder / "beside.db", clock, RULES) as beside,
        opened(kind, folder / "after.db", clock, RULES) as after,
    ):
        await write_all(beside, before)
        tries = meanwhile[:2]  # after two it is one step, which nobody can interrupt
        given = await beside.values.transform_long(LOGGED, b"k", interrupted)

        await write_all(after, before + written)
        assert given == await after.values.transform(LOGGED, b"k", change)
        assert await everything(beside) == await everything(after)


async def write_all(store: Store, decisions: Sequence[Put | Drop]) -> None:
    for decision in decisions:
        await store.values.transform(LOGGED, b"k", lambda _, decision=decision: decision)  # type: ignore[misc]


async def everything(store: Store) -> str:
    return repr([await store.values.read(LOGGED, b"k"), await store.values.history(LOGGED, b"k")])
