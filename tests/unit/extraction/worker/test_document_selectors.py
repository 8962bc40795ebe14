from __future__ import annotations

import pytest

from spyweb.extraction.worker.document import FieldSelector, split


@pytest.mark.parametrize(
    "selector",
    [
        *("h2", "h2, a", "a > b", "a + b", "a ~ b", "a, b + c", "a, b > c", "[title='+ a, ~ b, > c']", ":is(a, b)"),
        *("[title=':scope']", r".a\:scope", ":scoped", ":has(> a)"),
    ],
)
def test_a_selector_that_begins_with_no_combinator_is_left_alone(selector: str) -> None:
    assert split(selector) == FieldSelector(selector, None, None)


@pytest.mark.parametrize(
    ("selector", "inside", "after", "reach"),
    [
        ("+ tr", None, "[spyweb-item] + tr", 1),
        ("+tr .x", None, "[spyweb-item] +tr .x", 1),
        ("+ tr + tr td", None, "[spyweb-item] + tr + tr td", 2),
        ("~ tr", None, "[spyweb-item] ~ tr", None),
        ("h2, + p", "h2", "[spyweb-item] + p", 1),
        ("+ a, b, ~ c, d", "b, d", "[spyweb-item] + a, [spyweb-item] ~ c", None),
        ("+ a:is(b, c), d", "d", "[spyweb-item] + a:is(b, c)", 1),
        ("+ a[t=','], d", "d", "[spyweb-item] + a[t=',']", 1),
        (r"+ a\,b, d", "d", r"[spyweb-item] + a\,b", 1),
        ("/* x, y */ + a, d", "d", "[spyweb-item] + a", 1),
        ("+ a,", "", "[spyweb-item] + a", 1),
    ],
)
def test_what_begins_with_one_is_sought_after_the_item(
    selector: str, inside: str | None, after: str, reach: int | None
) -> None:
    assert split(selector) == FieldSelector(inside, after, reach)


@pytest.mark.parametrize(
    ("selector", "inside"),
    [
        ("> td", "[spyweb-item] > td"),
        (">td + td", "[spyweb-item] >td + td"),
        (":scope > td", "[spyweb-item] > td"),
        (":SCOPE td", "[spyweb-item] td"),
        (":scope", "[spyweb-item]"),
        ("tr:scope", "tr[spyweb-item]"),
        ("h2, > td, b", "h2, [spyweb-item] > td, b"),
        ("td:not(:scope > b, .x)", "td:not([spyweb-item] > b, .x)"),
        ("> [title=':scope']", "[spyweb-item] > [title=':scope']"),
    ],
)
def test_the_item_itself_may_be_named(selector: str, inside: str) -> None:
    assert split(selector) == FieldSelector(inside, None, None, names_item=True)


def test_what_is_around_the_item_may_be_named_by_it_too() -> None:
    assert split(":scope + tr b") == FieldSelector(None, "[spyweb-item] + tr b", 1)
    assert split("> td, :scope~ p") == FieldSelector("[spyweb-item] > td", "[spyweb-item] ~ p", None, names_item=True)
