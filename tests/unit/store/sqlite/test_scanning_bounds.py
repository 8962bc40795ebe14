from __future__ import annotations

import pytest

from spyweb.errors import TooLarge
from spyweb.model import MIB
from spyweb.store.sqlite.scanning import ITEM_COST, within


def test_items_are_given_as_long_as_they_fit() -> None:
    texts = [b"a", b"bb", b"ccc"]
    exactly = 3 * ITEM_COST + 6

    assert list(within(exactly, texts, len)) == texts
    assert list(within(None, texts, len)) == texts
    with pytest.raises(TooLarge):
        list(within(exactly - 1, texts, len))


def test_no_more_is_taken_than_what_shows_that_it_is_too_much() -> None:
    texts = iter([b"x" * MIB] * 10)

    with pytest.raises(TooLarge, match=r"^the answer would be larger than 2.5 MB$"):
        list(within(5 * MIB // 2, texts, len))

    assert len(list(texts)) == 7
