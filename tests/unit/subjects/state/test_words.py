"""Stored values in lines and fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import NULL, Value
from spyweb.store.model.entries import Entry
from spyweb.subjects.state.views import EntryView, Plain, view_entry
from spyweb.subjects.state.words import (
    CHANGES_SHOWN,
    LONGEST_EDITED,
    FieldType,
    diff,
    edit_value,
    show_versions,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=3),
    max_leaves=8,
)


def entry(value: Value, version: int = 1, key: bytes = b"k") -> EntryView:
    return view_entry("state", key, Entry(value=value, version=version, created_ms=1, updated_ms=version))


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (b"a\nb", FieldType.TEXT, "a\nb"),
        (b"a\r\nb", FieldType.JSON, '"a\\r\\nb"'),
        (b"\xff", FieldType.JSON, '{\n  "$base64": "/w=="\n}'),
        (True, FieldType.BOOLEAN, "true"),
        (1, FieldType.NUMBER, "1"),
        (1.5, FieldType.NUMBER, "1.5"),
        (NULL, FieldType.JSON, "null"),
        ([1, b"a"], FieldType.JSON, '[\n  1,\n  "a"\n]'),
    ],
)
def test_a_field_shows_a_value_so_that_it_comes_back_unchanged(value: Value, kind: FieldType, text: str) -> None:
    edited = edit_value(entry(value))
    assert (edited.type, edited.text, edited.is_too_long) == (kind, text, False)


def test_what_is_very_long_is_cut_and_says_so() -> None:
    values: list[Value] = [b"x" * (LONGEST_EDITED + 1), [1] * LONGEST_EDITED]
    for value in values:
        edited = edit_value(entry(value))
        assert (len(edited.text), edited.is_too_long) == (LONGEST_EDITED, True)


def test_versions_say_what_they_changed() -> None:
    values: list[Value] = [{b"a": 3, b"c": [1]}, {b"a": 1, b"b": 2}]
    newest_first = [entry(value, version=2 - n) for n, value in enumerate(values)]
    second, first = show_versions(newest_first, 10)
    assert [(each.path, each.old, each.new) for each in second.changes] == [
        ("a", "1", "3"),
        ("c", None, "[1]"),
        ("b", "2", None),
    ]
    assert (first.is_first, first.preview, list(first.changes)) == (True, '{"a":1,"b":2}', [])


def test_very_many_changes_are_cut() -> None:
    many: dict[bytes | bool | int | float, Value] = {str(n).encode(): n for n in range(CHANGES_SHOWN + 1)}
    second, _ = show_versions([entry(many, 2), entry({b"x": 1})], 10)
    assert (len(second.changes), second.left_out) == (CHANGES_SHOWN, True)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (1, 1, []),
        (1, 2, [("", "1", "2")]),
        (1, 1.0, [("", "1", "1.0")]),
        (1, True, [("", "1", "true")]),
        ({"a": 1}, [1], [("", '{"a":1}', "[1]")]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": None}, [
            ("a.b", "1", "3"), ("a.c", "2", None), ("d", None, "null"),
        ]),
        ([1, 2], [1, 3, 4], [("2", "2", "3"), ("3", None, "4")]),
    ],
)  # fmt: skip
def test_each_place_that_differs_is_named(old: Plain, new: Plain, changes: list[tuple[object, ...]]) -> None:
    assert list(diff(old, new)) == changes


def test_of_more_versions_than_are_shown_the_last_is_compared_too() -> None:
    versions = show_versions([entry(3, 3), entry(2, 2), entry(1, 1)], 2)
    assert [(len(each.changes), each.is_first) for each in versions] == [(1, False), (1, False)]
    assert show_versions([], 9) == []


@given(VALUES, VALUES)
def test_values_differ_where_and_only_where_a_place_is_named(old: Plain, new: Plain) -> None:
    assert list(diff(new, new)) == []
    assert bool(list(diff(old, new))) == (repr(old) != repr(new) and not _same_tables(old, new))


def _same_tables(old: object, new: object) -> bool:
    """Tell whether two values are the same but for the order of keys."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same_tables(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same_tables, old, new))
    return type(old) is type(new) and old == new
