"""How much an answer may come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from spyweb.errors import TooLarge
from spyweb.model import MIB
from spyweb.store.sqlite.changes import Row

ITEM_COST = 64  # bytes that an item of an answer takes at least, wherever it is put

T = TypeVar("T")


def within(largest: int | None, items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[T]:
    """Yield the items.  Raises TooLarge once they are more together; with None there is no limit."""
    if largest is None:
        yield from items
        return
    left = largest
    for item in items:
        left -= ITEM_COST + size_of(item)
        if left < 0:
            raise TooLarge(f"the answer would be larger than {largest / MIB:.3g} MB")
        yield item


def size_of_row(keyed: tuple[bytes, Row]) -> int:
    """Return the size of the key and the value, as they are stored."""
    key, row = keyed
    return len(key) + size_of_value(row)


def size_of_value(row: Row) -> int:
    return len(row.column) if isinstance(row.column, bytes | str) else 0
