"""Couple the reader of a setting's value with the JSON Schema of what it accepts.

`spyweb schema` and the parser look at the same shapes, so that neither can know a key that the other does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import time
from typing import Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")

Schema = Mapping[str, object]
Read = Callable[[object], T]

TEXT: Schema = {"type": "string"}
NOT_BLANK: Schema = {"type": "string", "pattern": r"\S"}

_TOML_NAMES = {list: "a list", dict: "a table", time: "a time"}


class Shape(Struct, Generic[T], frozen=True):
    """Converts a value from a file to spyweb's own terms, or raises ValueError."""

    read: Read[T]
    schema: Schema
    show: Callable[..., object] | None = None  # converts a value back to how a file writes it, if that differs
    none: object = None  # how a file writes None, if it can

    def __call__(self, value: object) -> T:
        return self.read(value)


class Shaping(Protocol):
    def __call__(self, read: Read[T]) -> Shape[T]: ...


def shaped(schema: Schema, show: Callable[..., object] | None = None, none: object = None) -> Shaping:
    """Attach to a reader the schema of what it accepts."""

    def with_schema(read: Read[T]) -> Shape[T]:
        return Shape(read, schema, show, none)

    return with_schema


def told(shape: Shape[T], words: str) -> Shape[T]:
    """Return the shape of a key with a line about it, for editors that show it."""
    return replace(shape, schema={**shape.schema, "description": words})


def list_of(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


def one_or_many(items: Schema) -> Schema:
    """Return the schema of a value or a list of such values."""
    return {"anyOf": [items, list_of(items)]}


def table_of(properties: Mapping[str, Schema], *required: str) -> Schema:
    """Return the schema of a table that has no other keys."""
    shape: dict[str, object] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return shape | {"required": list(required)} if required else shape


def wrong(expected: str, value: object) -> ValueError:
    shown = _shown(value)
    return ValueError(f"expected {expected}, not {shown if len(shown) <= 80 else shown[:77] + '...'}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float | str) else _TOML_NAMES.get(type(value), "a date")
