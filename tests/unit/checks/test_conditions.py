from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.checks.conditions import LONGEST, METHODS, find_problem
from spyweb.specs.linting.names import MEMBERS
from tests.fakes.lua_text import compile_problem

WHOLE = "it is no whole expression of Lua"
NAMES = ("status", "latency", "body", "json")


@pytest.mark.parametrize(
    "condition",
    [
        "status == 200", "latency < 8e2 and not (status ~= 200 or status > 0x1F4)", "json.items[1].state == 'ok'",
        'body:find("a\\n\\65\\x41\\u{e9}", 1, true)', "#json.items >= 2", "json['a-b'] ~= nil", "-latency < -.5",
        "body:lower():match'ok'", "('x'):rep(3) == body", "status // 100 == 2", "~status & 1 == 0", "true",
        "body .. '' == 'x'", "2 ^ 3.5 == 1", " status==200 ", "body:find('--')", "body:find('function')",
    ],
)  # fmt: skip
def test_an_expression_over_known_names_is_right(condition: str) -> None:
    assert find_problem(condition, NAMES) == ""
    assert compile_problem(f"return {condition}", "x") is None


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("", "{WHOLE}"),
        ("status ==", "{WHOLE}"),
        ("status = 200", "= is not for a condition: write =="),
        ("status != 200", "!= is not for a condition: write ~="),
        ("status == 200 && latency < 5", "&& is not for a condition: write and"),
        ("status == 200 || latency < 5", "|| is not for a condition: write or"),
        ("statsu == 200", 'unknown name statsu; did you mean "status"?'),
        ("nothing.like(it)", "unknown name nothing; there are status, latency, body, json"),
        ("_ENV", "unknown name _ENV; there are status, latency, body, json"),
        ("body:fnd('x')", 'texts have no method fnd; did you mean "find"?'),
        ("body:dump()", "texts have no method dump"),
        ("(status == 200", "{WHOLE}"),
        ("status == 200)", "{WHOLE}"),
        ("status 200", "{WHOLE}"),
        ("status(1)", "{WHOLE}"),
        ("json[1", "{WHOLE}"),
        ("'x':find('y')", "{WHOLE}"),
        ("body:find('x',)", "{WHOLE}"),
        ("json.f(1)", "{WHOLE}"),
        ("status, status", "{WHOLE}"),
        ("json.and", "and is not for a condition, which is one expression"),
        ("json.", ". is not for a condition"),
        ("(function() end)()", "function is not for a condition, which is one expression"),
        ("status == 200 return", "return is not for a condition, which is one expression"),
        ("status == 1 -- x", "-- is not for a condition"),
        ("#{1, 2} == 2", "{1, is not for a condition"),
        ("body == [['x']]", "{WHOLE}"),
        ("body == 'x", "'x is not for a condition"),
        ("body == '\\q'", "'\\q' is not for a condition"),
        ("status == 3x", "3x is not for a condition"),
        ("'" + "\\z " * 25 + "x", "'\\z is not for a condition"),  # in no time
        ("... == nil", "... is not for a condition"),
    ],
)
def test_anything_else_is_refused_with_the_reason(condition: str, problem: str) -> None:
    assert find_problem(condition, NAMES) == f"{condition or 'a blank text'}: {problem}".replace("{WHOLE}", WHOLE)


def test_a_condition_is_short() -> None:
    assert find_problem("1 == 1" + " " * LONGEST, NAMES) == "a condition has at most 500 characters, not 506"
    many = "a condition has at most 100 words and signs, not "
    for long in ("- " * 249, "(" * 120 + "1" + ")" * 120, "not " * 120 + "1", "body" + "..status" * 60):
        assert find_problem(long, NAMES).startswith(many)
    for deep in ("- " * 99 + "1", "(" * 49 + "1" + ")" * 49, "json[" * 33 + "1" + "]" * 33, "1" + " ..1" * 49):
        assert find_problem(deep, NAMES) == ""
        assert compile_problem(f"return ({deep})", "x") is None


def test_a_condition_holds_no_control_characters() -> None:
    assert find_problem("status == 200\n\tand latency < 5", NAMES) == ""
    assert find_problem("body == '\x1b[2J'", NAMES) == "a condition can't hold control characters"


def test_the_methods_are_those_of_texts() -> None:
    assert {name.decode() for name in MEMBERS[b"string"]} == {*METHODS.split()}


PIECES = (
    "status", "json", "body", ".state", "[1]", ":find('x')", ":len()", "(", ")", "[", "]", "and", "or", "not", "nil",
    "==", "~=", "<", "=", "+", "-", "#", "~", "..", "...", ".", ",", "1", "0x1p4", "1e", "3.", ".5", "'a'", '"\\z b"',
    "'\\256'", "'\\u{110000}'", "--", "[[x]]", "{}", "function", "end", "&", "|", "//", ">>", "::", ";", "\n",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from(["", " "]))
def test_what_is_accepted_is_one_expression_for_lua_too(pieces: list[str], between: str) -> None:
    condition = between.join(pieces)
    if not find_problem(condition, NAMES):
        assert compile_problem(f"return {condition}", "x") is None
        assert compile_problem(f"return ({condition}\n)", "x") is None
