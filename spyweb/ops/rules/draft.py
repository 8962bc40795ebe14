"""A value while update ops work on it: whatever holds other values is copied before its first change, and only then.

So what was read stays as it was, and ten thousand ops on a large value take no longer than ten thousand on a small one.
"""

from __future__ import annotations

from typing import TypeVar, cast

from spyweb.model import Value
from spyweb.ops.rules.paths import Object

Holder = TypeVar("Holder", Object, list[Value])


class Draft:
    def __init__(self) -> None:
        self._own: dict[int, Object | list[Value]] = {}  # made here, by identity: it is kept, so that is unique
        self._has_texts = False

    def own(self, holder: Holder) -> Holder:
        """One that may be changed."""
        if id(holder) in self._own:
            return holder
        copy = holder.copy()
        self._own[id(copy)] = copy
        return copy

    def extended(self, text: bytes | bytearray, more: bytes) -> bytes:
        """A text that grows; until `finished` a bytearray, which is not copied each time."""
        growing = text if isinstance(text, bytearray) else bytearray(text)
        growing += more
        self._has_texts = True
        return cast(bytes, growing)

    def finished(self, root: Value) -> Value:
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
