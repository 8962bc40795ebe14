from __future__ import annotations

import math

import msgspec
import pytest

from spyweb.lua.endings import result_text, show_value
from spyweb.lua.wire import Ext, Foreign


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"gr\xc3\xbcn", "grün"),
        (b"\xff", "\ufffd"),
        ({b"a": [1, True, None]}, {"a": [1, True, None]}),
        ({1: b"x", 2.5: b"y"}, {"1": "x", "2.5": "y"}),
        (Foreign(Ext.FOREIGN, "function"), "<function>"),
        ({b"a": [Foreign(Ext.NULL, "table")]}, {"a": [None]}),
        (Foreign(Ext.EMPTY_ARRAY, "table"), []),
        (Foreign(Ext.CYCLE, "table"), "<table>"),
        (math.inf, "inf"),
        (-(1 << 63), -(1 << 63)),
        (object(), "<object>"),
    ],
)
def test_what_a_script_returned_is_shown_as_json_can_hold_it(value: object, shown: object) -> None:
    assert show_value(value) == shown
    msgspec.json.encode(shown)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (b"open: not asking", "open: not asking"),
        (7, "7"),
        (Foreign(Ext.NULL, "table"), "null"),
        ({b"a": [1, 2]}, '{"a":[1,2]}'),
        (b"x" * 200, "x" * 200),
        (b"x" * 201, "x" * 199 + "…"),
    ],
)
def test_the_beginning_of_a_result_stays_on_record(value: object, text: str) -> None:
    assert result_text(value) == text


def test_a_very_deep_result_is_cut_instead_of_overflowing() -> None:
    deep: object = b"end"
    for _ in range(10_000):
        deep = [deep]
    assert b'"..."' in msgspec.json.encode(show_value(deep))


# -- JSON -----------------------------------------------------------------------------------------------------
