"""Edit a value by update ops, copying each table before its first change and no other.

So the stored value stays as it was, and many ops on a large value take no longer than on a small one.
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
        self._own: dict[int, Object | list[Value]] = {}  # copies made here, by id(), which is unique as they are kept
        self._places: dict[int, Places] = {}  # of large tables that are merged into, by id()
        self._fewer: set[int] = set()  # the id() of those that keys were removed from
        self._has_texts = False

    def own(self, holder: Holder) -> Holder:
        """Return the table, or a copy of it that may be changed."""
        if id(holder) in self._own:
            return holder
        copy = holder.copy()
        self._own[id(copy)] = copy
        return copy

    def merge(self, table: Object, more: Object) -> None:
        """Merge these into an own table.  Raises Unstorable before that would take long."""
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
        """Remove a key from an own table."""
        del table[key]
        self._fewer.add(id(table))

    def extended(self, text: bytes | bytearray, more: bytes) -> bytes:
        """Return a text with more at its end; until `finished` a bytearray, which is not copied each time."""
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
