"""Show stored values: in a line, in a field that can be edited, and what a version of one has changed.  Pure.

Values are in the form of store/interchange/value_json.py; large ones take a while, so this belongs into a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, zip_longest
from typing import NamedTuple

import msgspec
from msgspec import Struct

from spyweb.store.interchange.value_json import TypeName
from spyweb.subjects.state.views import EntryView, Plain, bytes_of
from spyweb.words import cut

LONGEST_PREVIEW = 80  # characters
LONGEST_CHANGE = 300
LONGEST_EDITED = 1 << 16  # characters of a value that is put into a field
CHANGES_SHOWN = 12  # of a version
_ABSENT = object()  # stands for a place that one of two values does not have

TYPE_WORDS = {**{kind: kind.value for kind in TypeName}, TypeName.STRING: "text", TypeName.BOOLEAN: "true or false"}


class FieldType(StrEnum):
    """The way in which a field is read as a value."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"


FIELD_WORDS = {**{kind: kind.value for kind in FieldType}, FieldType.BOOLEAN: "true or false", FieldType.JSON: "JSON"}


class ShownEntry(Struct, frozen=True, kw_only=True):
    """An entry in a row of a list."""

    key: str
    key_bytes: bytes
    preview: str
    type: str
    version: int
    updated_ms: int
    expires_ms: int | None


class FieldValue(Struct, frozen=True, kw_only=True):
    """A value as a field shows it."""

    text: str
    type: FieldType
    is_too_long: bool = False  # the text is its beginning


class ShownChange(NamedTuple):
    """A place of a value that a version has changed, and its value before and after; None: it was not there."""

    path: str
    old: str | None
    new: str | None


class ShownVersion(Struct, frozen=True, kw_only=True):
    version: int
    at_ms: int
    changes: Sequence[ShownChange]
    is_first: bool  # the version before is not kept
    left_out: bool
    preview: str


def as_text(plain: Plain) -> str:
    """Return a value as people read it: a text as it is, anything else as JSON."""
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def show_entry(entry: EntryView) -> ShownEntry:
    return ShownEntry(
        key=as_text(entry.key),
        key_bytes=bytes_of(entry.key),
        preview=cut(as_text(entry.value), LONGEST_PREVIEW),
        type=TYPE_WORDS[entry.type],
        version=entry.version,
        updated_ms=entry.updated_ms,
        expires_ms=entry.expires_ms,
    )


def edit_value(entry: EntryView) -> FieldValue:
    """Return what a field shows; a text that a field would not give back unchanged is shown as JSON."""
    value = entry.value
    match value:
        case str() if "\r" not in value:
            text, kind = value, FieldType.TEXT
        case bool():
            text, kind = ("true" if value else "false"), FieldType.BOOLEAN
        case int() | float():
            text, kind = msgspec.json.encode(value).decode(), FieldType.NUMBER
        case _:
            encoded = msgspec.json.encode(value)
            is_short = len(encoded) <= LONGEST_EDITED
            text, kind = (msgspec.json.format(encoded, indent=2) if is_short else encoded).decode(), FieldType.JSON
    return FieldValue(text=text[:LONGEST_EDITED], type=kind, is_too_long=len(text) > LONGEST_EDITED)


def show_versions(newest_first: Sequence[EntryView], limit: int) -> list[ShownVersion]:
    """Show the newest versions with what each has changed; one version more than those may be given."""
    versions = []
    for place, entry in enumerate(newest_first[:limit], 1):
        before = newest_first[place] if place < len(newest_first) else None
        changes = list(islice(diff(before.value, entry.value), CHANGES_SHOWN + 1)) if before else []
        versions.append(
            ShownVersion(
                version=entry.version,
                at_ms=entry.updated_ms,
                changes=changes[:CHANGES_SHOWN],
                is_first=before is None,
                left_out=len(changes) > CHANGES_SHOWN,
                preview=cut(as_text(entry.value), LONGEST_CHANGE),
            )
        )
    return versions


def diff(old: object, new: object, path: tuple[str, ...] = ()) -> Iterator[ShownChange]:
    """Yield the places in which two values differ, in the order of the new one."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*new, *old]):
            yield from diff(old.get(name, _ABSENT), new.get(name, _ABSENT), (*path, str(name)))
    elif isinstance(old, list) and isinstance(new, list):
        for place, (before, after) in enumerate(zip_longest(old, new, fillvalue=_ABSENT), 1):  # as Lua counts
            yield from diff(before, after, (*path, str(place)))
    elif type(old) is not type(new) or old != new:  # as Lua tells values apart: 1 is not 1.0, and true is no number
        yield ShownChange(".".join(path), _shown(old), _shown(new))


def _shown(value: object) -> str | None:
    return None if value is _ABSENT else cut(as_text(value), LONGEST_CHANGE)
