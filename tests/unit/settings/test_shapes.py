from __future__ import annotations

import pytest

from spyweb.settings.shapes import TEXT, list_of, one_or_many, shaped, table_of


@shaped({"type": "integer"}, str)
def number(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("expected a number")
    return value


def test_a_shape_reads_as_its_reader_does_and_says_what_it_takes() -> None:
    assert (number(5), number.schema, number.show) == (5, {"type": "integer"}, str)
    with pytest.raises(ValueError, match="expected a number"):
        number("x")


def test_a_table_has_no_other_keys_than_its_own() -> None:
    assert table_of({"a": TEXT}, "a") == {
        "type": "object",
        "properties": {"a": TEXT},
        "additionalProperties": False,
        "required": ["a"],
    }
    assert "required" not in table_of({"a": TEXT})


def test_one_or_many_is_a_value_or_a_list_of_such() -> None:
    assert one_or_many(TEXT) == {"anyOf": [TEXT, list_of(TEXT)]}
