"""What a version of a value changed of the one before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.store.interchange.value_json import TypeName
from spyweb.views.state import EntryView, Plain
from spyweb.views.value_diff import MOST_CHANGES, DiffKind, diff, view_versions

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=3),
    max_leaves=8,
)


def entry(version: int, value: Plain) -> EntryView:
    return EntryView(
        namespace="state", key="k", value=value, type=TypeName.TABLE, version=version, created_ms=0, updated_ms=0
    )


def told(old: Plain, new: Plain) -> list[tuple[object, ...]]:
    return [(list(each.path), each.kind, each.old, each.new) for each in diff(old, new)]


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (1, 1, []),
        (1, 2, [([], DiffKind.CHANGED, 1, 2)]),
        (1, 1.0, [([], DiffKind.CHANGED, 1, 1.0)]),
        (1, True, [([], DiffKind.CHANGED, 1, True)]),
        ({"a": 1}, [1], [([], DiffKind.CHANGED, {"a": 1}, [1])]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": None}, [
            (["a", "b"], DiffKind.CHANGED, 1, 3), (["a", "c"], DiffKind.REMOVED, 2, None),
            (["d"], DiffKind.ADDED, None, None),
        ]),
        ([1, 2], [1, 3, 4], [([2], DiffKind.CHANGED, 2, 3), ([3], DiffKind.ADDED, None, 4)]),
    ],
)  # fmt: skip
def test_each_place_that_differs_is_named(old: Plain, new: Plain, changes: list[tuple[object, ...]]) -> None:
    assert told(old, new) == changes


def test_a_version_says_what_it_changed_and_the_oldest_that_nobody_knows() -> None:
    versions = view_versions([entry(3, 3), entry(2, 2), entry(1, 2)], 9)
    assert [each.changes is None for each in versions] == [False, False, True]
    assert [len(each.changes or ()) for each in versions] == [1, 0, 0]
    assert view_versions([], 9) == []


def test_of_more_versions_than_are_shown_the_last_is_compared_too() -> None:
    versions = view_versions([entry(3, 3), entry(2, 2), entry(1, 1)], 2)
    assert [len(each.changes or ()) for each in versions] == [1, 1]


def test_very_many_changes_are_cut() -> None:
    (version, _) = view_versions([entry(2, list(range(999))), entry(1, [])], 9)
    assert (len(version.changes or ()), version.is_cut) == (MOST_CHANGES, True)


@given(VALUES, VALUES)
def test_values_differ_where_and_only_where_a_place_is_named(old: Plain, new: Plain) -> None:
    assert told(new, new) == []
    assert bool(told(old, new)) == (repr(old) != repr(new) and not _same_tables(old, new))


def _same_tables(old: object, new: object) -> bool:
    """Tell whether two values are the same but for the order of keys."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same_tables(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same_tables, old, new))
    return type(old) is type(new) and old == new
