"""The versions of a stored value, each with what it changed of the one before.  Pure.

Values are in the form of store/interchange/value_json.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, zip_longest

from msgspec import Struct

from spyweb.views.state import EntryView, Plain

MOST_CHANGES = 200  # that are shown of one version

_ABSENT = object()


class DiffKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class ValueChange(Struct, frozen=True, kw_only=True):
    """One place of a value that differs."""

    path: Sequence[str | int]  # empty: the whole value
    kind: DiffKind
    old: Plain = None
    new: Plain = None


class VersionView(Struct, frozen=True, kw_only=True):
    entry: EntryView
    changes: Sequence[ValueChange] | None  # None: the version before is not kept
    is_cut: bool = False  # there are more


def view_versions(newest_first: Sequence[EntryView], limit: int) -> list[VersionView]:
    """Return the newest versions with what each has changed; one version more than those may be given."""
    shown = []
    for entry, before in zip_longest(newest_first[:limit], newest_first[1 : limit + 1]):
        if before is None:
            shown.append(VersionView(entry=entry, changes=None))
            continue
        changes = list(islice(diff(before.value, entry.value), MOST_CHANGES + 1))
        shown.append(VersionView(entry=entry, changes=changes[:MOST_CHANGES], is_cut=len(changes) > MOST_CHANGES))
    return shown


def diff(old: Plain, new: Plain, path: tuple[str | int, ...] = ()) -> Iterator[ValueChange]:
    """Yield the places in which two values differ, in the order of the new one."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*new, *old]):
            yield from _of_place(old.get(name, _ABSENT), new.get(name, _ABSENT), (*path, str(name)))
    elif isinstance(old, list) and isinstance(new, list):
        for place, (before, after) in enumerate(zip_longest(old, new, fillvalue=_ABSENT), 1):  # as Lua counts
            yield from _of_place(before, after, (*path, place))
    elif not _is_same(old, new):
        yield ValueChange(path=path, kind=DiffKind.CHANGED, old=old, new=new)


def _of_place(old: object, new: object, path: tuple[str | int, ...]) -> Iterator[ValueChange]:
    if old is _ABSENT:
        yield ValueChange(path=path, kind=DiffKind.ADDED, new=new)
    elif new is _ABSENT:
        yield ValueChange(path=path, kind=DiffKind.REMOVED, old=old)
    else:
        yield from diff(old, new, path)


def _is_same(old: object, new: object) -> bool:
    """Compare as Lua tells values apart: 1 is not 1.0, and true is no number."""
    return type(old) is type(new) and old == new
