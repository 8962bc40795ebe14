"""The laws of update ops: all of them at once are each of them by itself, and nothing that they were given changes."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import NULL, Value
from spyweb.ops.rules.updates import Update, UpdateKind, apply

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
