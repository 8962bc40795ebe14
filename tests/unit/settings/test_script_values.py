"""Values for scripts: tables laid over each other, a file, and what a command line gives."""

from __future__ import annotations

import pytest

from spyweb.limits import SCRIPT_VALUES
from spyweb.settings.script_values import from_text, merge, parse_variable, to_text, values_table


def test_the_strongest_table_is_first_and_tables_in_it_are_laid_over_each_other_too() -> None:
    strong = {"host": "web1", "db": {"port": 2}}
    weak = {"host": "web0", "db": {"port": 1, "name": "x"}, "list": [1]}
    assert merge([strong, weak]) == {"host": "web1", "db": {"port": 2, "name": "x"}, "list": [1]}
    assert merge([{"a": 1}, {"a": {"b": 1}}]) == {"a": 1}
    assert merge([{"a": {"b": 1}}, {"a": 1}]) == {"a": {"b": 1}}
    assert merge([]) == {}


def test_they_are_kept_as_text() -> None:
    values = {"a": [1, 2.5, True, "ä"], "b": {"c": {}}}
    assert from_text(to_text(values)) == values
    assert (to_text({}), from_text("")) == ("", {})


def test_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        to_text({"a": "x" * SCRIPT_VALUES})


@pytest.mark.parametrize("value", [7, "text", [1]])
def test_what_is_no_table_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a table"):
        values_table(value)


def test_what_is_too_deep_is_refused() -> None:
    value: object = 1
    for _ in range(100):
        value = {"a": [value]}
    with pytest.raises(ValueError, match="deeper"):
        values_table(value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": 1}),
        ("a.b.c=true", {"a": {"b": {"c": True}}}),
        ("a=web1.example.com", {"a": "web1.example.com"}),
        ('a="1"', {"a": "1"}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ("a={b = 1}", {"a": {"b": 1}}),
        ("a=", {"a": ""}),
        ("a=x = y", {"a": "x = y"}),
        ("a=1\nb = 2", {"a": "1\nb = 2"}),
    ],
)
def test_a_variable_is_toml_or_else_text(text: str, values: dict[str, object]) -> None:
    assert parse_variable(text) == values


@pytest.mark.parametrize("text", ["a", "=1", "a..b=1", ".".join("a" * 61) + "=1", ""])
def test_a_variable_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--var"):
        parse_variable(text)
