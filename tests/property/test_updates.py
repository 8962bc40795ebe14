"""The law of update ops: all of them at once are each of them by itself, and nothing that they were given changes."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import NULL, Value
from spyweb.ops.rules.updates import Kind, Update, apply

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
any_update = st.builds(Update, kind=st.sampled_from(Kind), path=paths, value=values, by=st.integers(-2, 2))
appended_text = st.builds(Update, kind=st.just(Kind.APPEND), path=paths, value=texts)


@given(values, st.lists(st.one_of(any_update, appended_text), max_size=12))
def test_many_ops_are_one_after_another_and_change_nothing_that_was_given(root: Value, updates: list[Update]) -> None:
    before = copy.deepcopy((root, updates))

    together = apply(root, updates)

    each, codes = root, []
    for update in updates:
        step = apply(each, [update])
        each = step.value
        codes += [problem.code for problem in step.problems]
    assert repr(together.value) == repr(each)
    assert [problem.code for problem in together.problems] == codes
    assert (root, updates) == before
