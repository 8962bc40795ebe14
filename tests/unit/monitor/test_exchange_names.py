"""The names in tables that hooks return which are not read."""

from __future__ import annotations

import pytest

from spyweb.monitor.exchange import EXPECTED, warning_about


@pytest.mark.parametrize("hook", EXPECTED)
def test_every_name_that_means_something_is_understood(hook: str) -> None:
    _, known = EXPECTED[hook]
    for name in known:
        assert warning_about(hook, {name.encode(): b"x"}) == ""


@pytest.mark.parametrize(
    ("hook", "value", "told"),
    [
        ("before_fetch", {b"url": b"x", b"Headers": {}}, "unknown name 'Headers' in what it returned: did you mean"),
        ("after_fetch", {b"respones": {}}, "unknown name 'respones' in what it returned: did you mean 'response'?"),
        (
            "after_fetch",
            {b"ok": True, b"response": {b"html": b""}},
            "nothing in its 'response' belongs to a response: expected",
        ),
        ("after_fetch", {b"response": {b"boddy": b""}}, "unknown name 'boddy' in its 'response': did you mean 'body'?"),
        ("before_fetch", {}, "nothing in what it returned belongs to a request: expected some of url, method,"),
        ("before_fetch", {1: b"x"}, "nothing in what it returned belongs to a request"),
        (
            "override_fetch",
            {b"html": b"x"},
            "nothing in what it returned belongs to a response: expected some of status, body,",
        ),
    ],
)
def test_a_table_in_which_nothing_or_a_misspelt_name_stands_is_told(hook: str, value: object, told: str) -> None:
    assert warning_about(hook, value).startswith(told)


def test_the_names_that_a_script_keeps_for_itself_are_no_mistake() -> None:
    assert warning_about("before_fetch", {b"url": b"x", b"mine": 1, b"page": 2}) == ""


@pytest.mark.parametrize(("hook", "value"), [("after_extract", {b"a": 1}), ("before_fetch", b"text"), ("on_error", {})])
def test_other_hooks_and_other_values_are_judged_elsewhere(hook: str, value: object) -> None:
    assert warning_about(hook, value) == ""


def test_a_very_long_name_is_not_compared() -> None:
    assert warning_about("before_fetch", {b"url": b"x", b"headers" * 100_000: 1}) == ""
