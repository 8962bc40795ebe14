"""Items between Python and Lua, and the keywords that are found in them."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.cooperative import run_at_once
from spyweb.lua import wire
from spyweb.model import NULL
from spyweb.monitor import items as items_module
from spyweb.monitor.items import Item, ItemReader, Keywords, items_to_lua, sequence
from spyweb.ops.arguments import Mismatch

NONE = Keywords((), ())
READER = ItemReader(("title", "price"), NONE)
NO_NULLS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FOLDED = "aßsS\u0131\u0130\u017f"  # a dotless i, a dotted I, a long s
FIELDS = st.dictionaries(NO_NULLS, NO_NULLS, max_size=5)


def found(keywords: Keywords, item: Item) -> tuple[str, ...]:
    for _ in keywords.search([item]):
        pass
    return item.matches


def crossed(items: list[Item]) -> object:
    """As they come back from Lua: every text is bytes."""
    return [
        {
            b"fields": {name.encode(): text.encode() for name, text in item.fields.items()},
            b"matches": [word.encode() for word in item.matches],
        }
        for item in items
    ]


@given(st.lists(FIELDS.map(Item), max_size=5))
def test_what_a_hook_gives_back_as_it_was_is_what_it_was(items: list[Item]) -> None:
    wire.pack([items_to_lua(items)])
    assert run_at_once(READER.read_all(crossed(items))) == items


def test_fields_come_in_the_order_of_the_settings_and_then_by_name() -> None:
    item = READER.read({b"fields": {b"z": b"1", b"price": b"2", b"a": b"3", b"title": b"4"}})
    assert list(item.fields) == ["title", "price", "a", "z"]


def test_numbers_and_booleans_become_text_and_null_nothing() -> None:
    given = {b"a": 3.0, b"b": 7, b"c": True, b"d": False, b"e": NULL, b"f": 0.5, 1: b"g"}
    assert READER.read({b"fields": given}).fields == {
        "1": "g",
        "a": "3",
        "b": "7",
        "c": "true",
        "d": "false",
        "e": "",
        "f": "0.5",
    }


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert READER.read({b"title": b"a\xff"}).fields == {"title": "a�"}


def test_a_bare_table_is_the_fields_and_matches_are_the_engines() -> None:
    reader = ItemReader(("title",), Keywords(("lamp",), ()))
    item = reader.read({b"title": b"A Lamp", b"matches": [b"made up"]})
    assert item == Item({"title": "A Lamp"})
    assert found(reader.keywords, item) == ("lamp",)


def test_in_a_bare_table_a_text_called_matches_is_a_field() -> None:
    assert READER.read({b"title": b"A Lamp", b"matches": b"3:1"}) == Item({"title": "A Lamp", "matches": "3:1"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([{b"fields": {b"tags": [b"a"]}}], "item 1: field 'tags': string expected, got table"),
        ([{}, b"x"], "item 2: table expected, got string"),
        ([{b"fields": b"x"}], "item 1: table expected, got string"),
        ({b"fields": {}}, "array expected, got a table with names in it"),
        (b"x", "array expected, got string"),
    ],
)
def test_what_makes_no_sense_is_named(value: object, reason: str) -> None:
    with pytest.raises(Mismatch) as caught:
        run_at_once(READER.read_all(value))
    assert str(caught.value) == reason


@pytest.mark.parametrize("nothing", [[], {}])
def test_an_empty_table_is_no_items(nothing: object) -> None:
    assert run_at_once(READER.read_all(nothing)) == []


def test_an_array_with_holes_is_what_is_between_them() -> None:
    assert len(run_at_once(READER.read_all({1: {b"title": b"a"}, 3: {b"title": b"b"}}))) == 2


def test_a_keyword_is_found_anywhere_in_a_field_whatever_the_case() -> None:
    words = Keywords(("STRASSE", "park", "sea"), ("title",))
    assert found(words, Item({"title": "Parkstraße 5", "other": "by the sea"})) == ("STRASSE", "park")


def test_a_keyword_does_not_reach_over_two_fields() -> None:
    assert found(Keywords(("ab",), ()), Item({"one": "a", "two": "b"})) == ()


@given(st.lists(st.text(FOLDED, max_size=4), max_size=3), st.text(FOLDED, max_size=20))
def test_a_long_text_is_searched_in_parts_with_the_same_result(words: list[str], text: str) -> None:
    item = Item({"title": text})
    with patch.multiple(items_module, SHORT=0, PART=2):
        steps = list(Keywords(tuple(words), ()).search([item]))
    assert item.matches == tuple(word for word in words if word.casefold() in text.casefold())
    assert not words or not text or len(steps) == (len(text) + 1) // 2 + len(words)


def test_of_many_items_each_is_a_step() -> None:
    items = [Item({"title": "lamp"}) for _ in range(10)]
    assert len(list(Keywords(("lamp",), ()).search(items))) == 10
    assert all(item.matches == ("lamp",) for item in items)


def test_an_item_that_was_searched_keeps_what_was_found_in_it() -> None:
    item = Item({"title": "lamp"}, ("an earlier keyword",), is_searched=True)
    assert found(Keywords(("lamp",), ()), item) == ("an earlier keyword",)


def test_without_keywords_every_item_is_kept() -> None:
    assert NONE.keeps(Item({}))
    assert not Keywords(("x",), ()).keeps(Item({}))


@pytest.mark.parametrize(("value", "array"), [([1, 2], [1, 2]), ({}, []), ({3: b"c", 1: b"a"}, [b"a", b"c"])])
def test_a_table_with_whole_numbers_as_keys_is_an_array(value: object, array: list[object]) -> None:
    assert sequence(value) == array


@pytest.mark.parametrize("value", [None, b"x", 1, {b"a": 1}, {1: 1, b"a": 1}, {1.5: 1}])
def test_anything_else_is_none(value: object) -> None:
    with pytest.raises(Mismatch, match="array expected, got "):
        sequence(value)
