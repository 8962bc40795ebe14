"""Arrays that hooks return."""

from __future__ import annotations

import pytest

from spyweb.lua.wire import Ext, Foreign
from spyweb.monitor.rules.reading import sequence, texts_in
from spyweb.ops.arguments import Mismatch


@pytest.mark.parametrize(
    ("value", "array"),
    [([1, 2], [1, 2]), ({}, []), (Foreign(Ext.EMPTY_ARRAY), []), ({3: b"c", 1: b"a"}, [b"a", b"c"])],
)
def test_a_table_with_whole_numbers_as_keys_is_an_array(value: object, array: list[object]) -> None:
    assert sequence(value) == array


@pytest.mark.parametrize("value", [None, b"x", 1, {b"a": 1}, {1: 1, b"a": 1}, {1.5: 1}])
def test_anything_else_is_none(value: object) -> None:
    with pytest.raises(Mismatch, match="array expected, got "):
        sequence(value)


def test_numbers_are_texts_too() -> None:
    assert texts_in({b"headers": {b"X": 3.0, 1: b"y"}}, "headers") == {b"X": b"3", b"1": b"y"}
