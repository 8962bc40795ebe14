"""Find tables whose number keys collide: building a dict of them takes quadratic time.

Python's hash of a number is predictable (that of a text is not), so keys can be chosen that all get the same places.
lua/worker/runtime/encode.lua checks what leaves a VM in the same way.
"""

from __future__ import annotations

from collections.abc import Collection

from spyweb.model import ValueKey

COLLIDE = "a table whose number keys collide"  # in the error that a script gets
FREE = 512  # keys; in a table of no more, collisions do no harm
MOST_PROBES = 64  # for each place in use, on average; regular keys (multiples, pairs of numbers) need fewer

_WORD = (1 << 64) - 1
_FIRST_SIZE = 1_024  # of the places of a dict; two thirds of them are used


def have_colliding_numbers(keys: Collection[ValueKey]) -> bool:
    """Return whether a dict that is filled with these keys, in this order, would become slow."""
    return len(keys) > FREE and Places().collide(keys)


class Places:
    """Simulates where CPython's dict puts its keys, in linear time whatever the keys are."""

    def __init__(self) -> None:
        self._waiting: list[ValueKey] = []  # as long as there are too few numbers to look
        self._numbers = 0
        self._keys: list[ValueKey] = []
        self._taken: list[ValueKey | None] = [None] * _FIRST_SIZE
        self._left = MOST_PROBES * _usable(_FIRST_SIZE)  # probes at this size

    def collide(self, more: Collection[ValueKey]) -> bool:
        """Add keys and return whether they collide with those already there; if so, nothing more may be added."""
        self._waiting += more
        self._numbers += len(more) - list(map(type, more)).count(bytes)
        if self._numbers <= FREE:
            return False
        waiting, self._waiting = self._waiting, []
        return not all(map(self._put, waiting))

    def _put(self, key: ValueKey) -> bool:
        taken, rest = self._taken, hash(key) & _WORD
        mask = len(taken) - 1
        place = rest & mask
        while (known := taken[place]) is not None:
            if known == key:
                return True
            rest >>= 5
            place = (place * 5 + rest + 1) & mask
            self._left -= 1
            if self._left < 0:
                return False
        taken[place] = key
        self._keys.append(key)
        return len(self._keys) < _usable(len(taken)) or self._grow()

    def _grow(self) -> bool:
        size, keys, self._keys = 2 * len(self._taken), self._keys, []
        self._taken, self._left = [None] * size, MOST_PROBES * _usable(size)
        return all(map(self._put, keys))


def _usable(size: int) -> int:
    return size * 2 // 3
