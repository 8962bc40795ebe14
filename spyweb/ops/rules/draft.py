"""A value while update ops work on it: whatever holds other values is copied before its first change, and only then.

So what was read stays as it was, and ten thousand ops on a large value take no longer than ten thousand on a small one.
"""

from __future__ import annotations

from typing import TypeVar, cast

from spyweb.model import Value, ValueKey
from spyweb.ops.rules.paths import Object
from spyweb.ops.rules.values import Unstorable
from spyweb.store.collisions import COLLIDE, FREE, Places, have_colliding_numbers

Holder = TypeVar("Holder", Object, list[Value])


class EditedValue:
    def __init__(self) -> None:
        self._own: dict[int, Object | list[Value]] = {}  # made here, by identity: it is kept, so that is unique
        self._places: dict[int, Places] = {}  # of large tables that are merged into, likewise
        self._fewer: set[int] = set()  # those that keys were removed from, likewise
        self._has_texts = False

    def own(self, holder: Holder) -> Holder:
        """One that may be changed."""
        if id(holder) in self._own:
            return holder
        copy = holder.copy()
        self._own[id(copy)] = copy
        return copy

    def merge(self, table: Object, more: Object) -> None:
        """Put these into an own table.  Raises Unstorable before it would take long."""
        if len(table) + len(more) > FREE and not more.keys() <= table.keys():
            places = self._places.get(id(table))
            keys = list(more)
            if places is None:
                places = self._places[id(table)] = Places()
                keys = [*table, *more]
            if places.collide(keys):
                raise Unstorable(f"{COLLIDE} can't be stored")
        table.update(more)

    def remove(self, table: Object, key: ValueKey) -> None:
        """Remove it from an own table."""
        del table[key]
        self._fewer.add(id(table))

    def extended(self, text: bytes | bytearray, more: bytes) -> bytes:
        """A text that grows; until `finished` a bytearray, which is not copied each time."""
        growing = text if isinstance(text, bytearray) else bytearray(text)
        growing += more
        self._has_texts = True
        return cast(bytes, growing)

    def finished(self, root: Value) -> Value:
        """Return the edited value.  Raises Unstorable."""
        for number in self._fewer:
            if have_colliding_numbers(cast(Object, self._own[number])):
                raise Unstorable(f"{COLLIDE} can't be stored")
        if not self._has_texts:
            return root
        for holder in self._own.values():
            if isinstance(holder, dict):
                holder.update([(key, settled(item)) for key, item in holder.items() if is_growing(item)])
        return settled(root)


def is_growing(value: object) -> bool:
    return isinstance(value, bytearray)


def settled(value: Value) -> Value:
    return bytes(cast(bytearray, value)) if is_growing(value) else value
