from __future__ import annotations

from collections.abc import Callable

import pytest

from spyweb.model import ValueKey
from spyweb.store.collisions import FREE, Places, have_colliding_numbers
from tests.fakes.collisions import colliding_floats, colliding_numbers
from tests.fakes.growth import LINEAR, growth


@pytest.mark.parametrize("make", [colliding_numbers, colliding_floats])
def test_numbers_that_walk_the_same_way_collide_in_whatever_order(make: Callable[[int], list[ValueKey]]) -> None:
    numbers = make(4_915)
    assert have_colliding_numbers(numbers)
    assert have_colliding_numbers(numbers[::-1])
    assert have_colliding_numbers([*numbers, *(b"%d" % number for number in range(4_000))])


@pytest.mark.parametrize(
    "keys",
    [
        range(100_000),
        [b"%d" % number for number in range(5_000)],
        [number * 86_400_000 for number in range(5_000)],
        *([number << shift for number in range(5_000)] for shift in (16, 32, 44, 48)),
        [number / 7 for number in range(5_000)],
    ],
)
def test_regular_numbers_and_texts_do_not(keys: list[ValueKey]) -> None:
    assert not have_colliding_numbers(keys)


def test_a_few_numbers_that_walk_the_same_way_are_let_be() -> None:
    assert not have_colliding_numbers(colliding_numbers(4_915)[:FREE])


def test_to_ask_is_cheap_where_a_dict_would_not_be() -> None:
    # Else they do not collide in this Python; once is enough, since noise can only make less of it.
    assert any(growth(dict.fromkeys, colliding_numbers, 1_228) > LINEAR for _ in range(3))
    assert growth(have_colliding_numbers, colliding_numbers, 2_457) < LINEAR


def test_a_key_that_comes_again_is_no_other() -> None:
    places = Places()

    assert not any(places.collide([7, 2.5, b"a", *range(100)]) for _ in range(100))


def test_keys_that_come_in_parts_collide_as_those_that_come_at_once() -> None:
    places, numbers = Places(), colliding_numbers(2_700)

    assert any(places.collide(numbers[at : at + 100]) for at in range(0, 2_700, 100))
