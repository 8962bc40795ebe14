"""Make numbers that collide in a dict of as many keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

SHIFT = 5  # bits of a hash that each further probe of CPython brings in
BITS = 60  # of the largest hash that is made here: the number itself
FLOAT_BITS = 50  # of one that a float has, too


def colliding_numbers(count: int, bits: int = BITS) -> list[int]:
    """Return so many: each meets, in whatever order they come, places that the others have taken.

    A third of them fills the way that a probe goes once nothing is left of its hash.  Each further step of a hash is
    chosen so that it stays on that way.
    """
    return list(_find(count, bits))


@cache
def _find(count: int, bits: int) -> tuple[int, ...]:
    """Find them once: it takes longer than what is measured with them."""
    size = 8
    while size * 2 // 3 < count:
        size *= 2
    way: set[int] = set()
    place = 0
    while len(way) < max(count // 3, 64):
        way.add(place)
        place = next_place(place, 0, size)
    found = (number for start in sorted(way) for number in _extended(start, start, 0, size, way, bits))
    return tuple(islice(found, count))


def colliding_floats(count: int) -> list[float]:
    """Return the same beyond Lua's integers: times 2^61 a hash is what it was."""
    return [number * 2.0**61 for number in colliding_numbers(count + 4, FLOAT_BITS) if number > 4][:count]


def next_place(place: int, rest: int, size: int) -> int:
    return (5 * place + rest + 1) % size


def _extended(number: int, place: int, shift: int, size: int, way: set[int], bits: int) -> Iterator[int]:
    if shift > bits:
        yield number
        return
    known = size.bit_length() - 1 + shift
    for more in range(32) if known + SHIFT <= bits else range(1):
        further = number | more << known
        at = next_place(place, further >> (shift + SHIFT), size)
        if at in way:
            yield from _extended(further, at, shift + SHIFT, size, way, bits)
