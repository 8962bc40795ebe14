"""The items found on a page: texts by their names, and the keywords that are in them.  Pure.

A hook can't set an item's `matches`: the keywords are searched again in the texts that it returns.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import cast

from msgspec import Struct

from spyweb.cooperative import Steps
from spyweb.model import NULL, Monitor
from spyweb.ops.arguments import Mismatch, read_table, read_text, type_name

FIELDS, MATCHES, OLD = b"fields", b"matches", b"old"
SHORT = 4_096  # characters in which all keywords are looked for in one step
PART = 16_384  # characters that are folded in one step


@dataclass(slots=True)
class Item:
    """One item; it does not change once it has been searched.  Not frozen, since many are made."""

    fields: Mapping[str, str]
    matches: tuple[str, ...] = ()
    old: Mapping[str, str] = field(default_factory=dict)  # tracked fields before they changed; empty: it is new
    url: str = ""  # of its page, once it is stored
    is_searched: bool = field(default=False, compare=False)
    _lua_table: dict[object, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def lua_table(self) -> dict[object, object]:
        """Return the item as a Lua table, made once; a hook that changes nothing returns an equal one."""
        if not self._lua_table:
            fields = {name.encode(): text.encode() for name, text in self.fields.items()}
            matches = [word.encode() for word in self.matches]
            self._lua_table.update({FIELDS: fields, MATCHES: matches or {}})  # an empty table comes back as {}
            if self.old:
                self._lua_table[OLD] = {name.encode(): text.encode() for name, text in self.old.items()}
        return self._lua_table


@dataclass(frozen=True, slots=True)
class Keywords:
    """Searches items for the keywords, in the fields that the settings name."""

    words: tuple[str, ...]
    fields: tuple[str, ...]  # empty: in all
    _folded: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", tuple((word, word.casefold()) for word in self.words))

    def search(self, items: Sequence[Item]) -> Steps[None]:
        """Find the keywords in the items not searched yet, in short steps, since a large page takes seconds."""
        for item in items if self._folded else ():
            if not item.is_searched:
                item.matches = yield from self._found_in(item.fields)
                item.is_searched = True

    def _found_in(self, fields: Mapping[str, str]) -> Generator[None, None, tuple[str, ...]]:
        """Return the words that are in one of the texts, in the order of the settings, in any case."""
        texts = list(fields.values()) if not self.fields else [fields.get(name, "") for name in self.fields]
        if sum(map(len, texts)) > SHORT:
            return (yield from self._found_in_parts(texts))
        yield
        folded = [text.casefold() for text in texts]
        return tuple(word for word, wanted in self._folded if any(wanted in text for text in folded))

    def _found_in_parts(self, texts: Sequence[str]) -> Generator[None, None, tuple[str, ...]]:
        """Fold texts in parts: case is folded character by character, so parts give what the whole would."""
        folded = [""] * len(texts)
        for number, text in enumerate(texts):
            parts = []
            for start in range(0, len(text), PART):
                yield
                parts.append(text[start : start + PART].casefold())
            folded[number] = "".join(parts)
        found = []
        for word, wanted in self._folded:
            yield
            if any(wanted in text for text in folded):
                found.append(word)
        return tuple(found)

    def keeps(self, item: Item) -> bool:
        return not self._folded or bool(item.matches)


def sequence(value: object) -> list[object]:
    """Read an array; of one with holes, the values between them."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and all(type(key) is int for key in value):
        return [value[key] for key in sorted(cast("dict[int, object]", value))]
    found = "a table with names in it" if isinstance(value, dict) else type_name(value)
    raise Mismatch(f"array expected, got {found}")


def prepare_for_lua(items: Sequence[Item]) -> Steps[None]:
    """Prepare the items for Lua in short steps, so that `items_to_lua` takes no time."""
    for item in items:
        yield
        _ = item.lua_table


def items_to_lua(items: Sequence[Item]) -> list[object]:
    return [item.lua_table for item in items]


class ItemReader(Struct, frozen=True):
    """Reads the items that hooks return; new ones are still to be searched for keywords."""

    names: tuple[str, ...]  # of the settings' fields, which come first in an item
    keywords: Keywords

    def read_all(self, value: object, given: Sequence[Item] = ()) -> Steps[list[Item]]:
        """Read an array of items; `given` are the hook's arguments.  Raises a Mismatch that names the item."""
        array, items = sequence(value), list[Item]()
        try:
            for each, item in zip(array, chain(given, repeat(None)), strict=False):
                yield
                items.append(self.read(each, item))
        except Mismatch as mismatch:
            raise Mismatch(f"item {len(items) + 1}: {mismatch}") from None
        return items

    def read(self, value: object, given: Item | None = None) -> Item:
        """Read `{fields = {…}}`, or just `{name = text}`; returns `given` itself where it came back as it was."""
        if given and given.lua_table == value:
            return given
        table = read_table(value)
        inner = table.get(FIELDS)
        if inner is None:
            # `matches` and `old` are fields where they are text, else the tables that spyweb made.
            inner = {key: text for key, text in table.items() if key not in (MATCHES, OLD) or isinstance(text, bytes)}
        fields = _fields(read_table(inner))
        ordered = {name: fields[name] for name in self.names if name in fields}  # a Lua table has no order
        if len(ordered) < len(fields):
            ordered.update(sorted((name, text) for name, text in fields.items() if name not in ordered))
        old = table.get(OLD)
        return Item(ordered, old=_fields(old) if isinstance(old, dict) else {})


def reader_of(monitor: Monitor) -> ItemReader:
    keywords = Keywords(monitor.keywords, monitor.search_fields)
    return ItemReader(tuple(field.name for field in monitor.fields), keywords)


def _fields(table: Mapping[object, object]) -> dict[str, str]:
    try:  # nearly always all of it is text
        return {key.decode(): text.decode() for key, text in table.items()}  # type: ignore[attr-defined]
    except (AttributeError, UnicodeDecodeError):
        return {_name(key): _text(key, value) for key, value in table.items()}


def _name(key: object) -> str:
    return read_text(key).decode("utf-8", "replace")


def _text(key: object, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is NULL:
        return ""
    try:
        return read_text(value).decode("utf-8", "replace")
    except Mismatch as mismatch:
        raise Mismatch(f"field '{_name(key)}': {mismatch}") from None
