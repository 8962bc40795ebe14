"""The name that was meant, among very many as well."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from spyweb.settings import nearest
from spyweb.settings.nearest import NEIGHBOURS, nearest_name

MANY = [f"{kind}-{number:04}" for kind in ("prices", "shop", "weather") for number in range(1_000)]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("bakcup", "backup"), ("BACKUP", "backup"), ("Pirces", "prices"), ("", None), ("zebra", None)],
)
def test_the_name_that_is_most_alike_is_found_or_none(name: str, meant: str | None) -> None:
    assert nearest_name(name, ["prices", "backup"]) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("wether-0371", "weather-0371"),
        ("xhop-0999", "shop-0999"),
        ("prices-05x0", "prices-0500"),
        ("shop-0371x", "shop-0371"),
    ],
)
def test_among_very_many_it_is_found_by_its_beginning_or_its_end(name: str, meant: str) -> None:
    found = nearest_name(name, MANY)

    assert found is not None
    assert found[:6] == meant[:6]


def test_names_are_told_as_they_were_given() -> None:
    assert nearest_name("europe/berln", ["Europe/Berlin"]) == "Europe/Berlin"


def test_only_a_few_of_very_many_are_compared() -> None:
    with patch.object(nearest, "get_close_matches", return_value=[]) as compare:
        nearest_name("prices-05x0", MANY)

    (_, compared), _ = compare.call_args
    assert len(compared) <= 4 * NEIGHBOURS
