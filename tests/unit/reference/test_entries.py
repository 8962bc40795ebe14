from __future__ import annotations

import pytest

from spyweb.reference.entries import Argument, ResultType, argument, function, in_one_line, result, split


def test_a_signature_is_taken_apart() -> None:
    found = function("json_encode(value: any, empty_as_array?: boolean): string text", "Compact JSON.")

    assert found.name == "json_encode"
    assert found.arguments == (Argument("value", "any"), Argument("empty_as_array", "boolean", optional=True))
    assert found.results == (ResultType("string", "text"),)
    assert found.usage == "json_encode(value, empty_as_array?)"


def test_types_may_hold_commas_and_parentheses() -> None:
    found = function("f(a: table<string, integer>, b: fun(x: any): (any, any)): {a: any, b: any}, string? why", "")

    assert [each.type for each in found.arguments] == ["table<string, integer>", "fun(x: any): (any, any)"]
    assert found.results == (ResultType("{a: any, b: any}"), ResultType("string?", "why"))


def test_a_function_may_take_and_give_nothing() -> None:
    found = function("on_finished()", "")
    assert (found.arguments, found.results, found.usage) == ((), (), "on_finished()")


@pytest.mark.parametrize("signature", ["", "f", "f(a: any"])
def test_what_is_no_signature_is_refused(signature: str) -> None:
    with pytest.raises(ValueError, match=r"not a signature|not closed"):
        function(signature, "")


def test_any_number_of_arguments_is_three_dots() -> None:
    assert argument("...: any") == Argument("...", "any")


def test_only_a_last_word_is_a_results_name() -> None:
    assert result("any ...") == ResultType("any ...")
    assert result('"a"|"b" which') == ResultType('"a"|"b"', "which")


def test_a_list_is_split_at_its_own_commas() -> None:
    assert list(split("a, b<c, d>, e")) == ["a", "b<c, d>", "e"]
    assert list(split("")) == []


def test_paragraphs_become_one_line() -> None:
    assert in_one_line("One.\n\nTwo,\nand  three.") == "One. Two, and three."
