"""Edit a value by update ops, copying each table before its first change and no other.

So the stored value stays as it was, and many ops on a large value take no longer than on a small one.
"""

from __future__ import annotations

from typing import TypeVar, cast

from spyweb.limits import NUMBER_KEYS
from spyweb.model import Value
from spyweb.ops.rules.paths import Object
from spyweb.ops.rules.values import Unstorable
from spyweb.store.encoding import OVER_NUMBER_KEYS, number_keys

Holder = TypeVar("Holder", Object, list[Value])


class EditedValue:
    def __init__(self) -> None:
        self._own: dict[int, Object | list[Value]] = {}  # copies made here, by id(), which is unique as they are kept
        self._numbers = 0  # keys that were merged in
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
        self._numbers += number_keys(more)
        check_count(self._numbers)
        table.update(more)

    def extended(self, text: bytes | bytearray, more: bytes) -> bytes:
        """Return a text with more at its end; until `finished` a bytearray, which is not copied each time."""
        growing = text if isinstance(text, bytearray) else bytearray(text)
        growing += more
        self._has_texts = True
        return cast(bytes, growing)

    def finished(self, root: Value) -> Value:
        """Return the edited value.  Raises Unstorable."""
        if self._numbers:
            check_count(sum(number_keys(holder) for holder in self._own.values() if isinstance(holder, dict)))
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


def check_count(numbers: int) -> None:
    if numbers > NUMBER_KEYS:
        raise Unstorable(f"{OVER_NUMBER_KEYS} can't be stored")
