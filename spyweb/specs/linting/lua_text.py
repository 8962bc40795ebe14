"""Split a Lua file into words, for guesses about what it does: nothing is run, and any text will do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

TEXT = b'""'  # stands for every string

_QUIET = re.compile(  # strings and comments
    rb"(?P<string>\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?)|(?P<long>(?:--)?\[(?P<level>=*+)\[)|--[^\n]*+",
    re.DOTALL,
)
_NO_NAMES = re.compile(rb"::\s*+\w*+\s*+::|\bgoto\s++\w++|<\s*+(?:const|close)\s*+>")
_SPACED_MEMBER = re.compile(rb"(?<![.:])([.:])(\s++)")

_TOKEN = re.compile(
    rb"(?P<skip>\s+|--(?!\[=*\[)[^\n]*)"
    rb"|(?P<long>(?:--)?\[(?P<level>=*)\[)"
    rb"|(?P<text>\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?)"  # one that nobody closes ends with its line
    rb"|(?P<word>[A-Za-z_][A-Za-z0-9_]*|[=~<>]=|.)",
    re.DOTALL,
)


def words_of(source: bytes, *, texts: bool = False) -> Iterator[tuple[bytes, int]]:
    """Yield each word or sign with its offset, without comments; with `texts` a short string as it is written."""
    position = 0
    while token := _TOKEN.match(source, position):
        position = token.end()
        if token["long"] is not None:
            closing = b"]" + token["level"] + b"]"
            found = source.find(closing, position)
            if found < 0:
                return
            position = found + len(closing)
            if not token["long"].startswith(b"--"):
                yield TEXT, token.start()
        elif token["text"] is not None:
            yield (token["text"] if texts else TEXT), token.start()
        elif token["word"] is not None:
            yield token["word"], token.start()


def line_at(source: bytes, offset: int) -> int:
    return source.count(b"\n", 0, offset) + 1


@dataclass(frozen=True)
class LuaText:
    """The source of a Lua file, with the views of it that the linter searches for names."""

    source: bytes

    @cached_property
    def code(self) -> bytes:
        """Return the source without comments and labels, with `""` for each string, on as many lines."""
        return _code_of(self.source)


def _code_of(source: bytes) -> bytes:
    parts: list[bytes] = []
    position = 0
    while quiet := _QUIET.search(source, position):
        end = quiet.end()
        if quiet["long"] is not None:
            closing = source.find(b"]" + quiet["level"] + b"]", end)
            end = len(source) if closing < 0 else closing + len(quiet["level"]) + 2
        is_string = quiet["string"] is not None or quiet[0].startswith(b"[")
        parts += (source[position : quiet.start()], b'""' if is_string else b" ")
        parts.append(b"\n" * source.count(b"\n", quiet.start(), end))
        position = end
    parts.append(source[position:])
    return _SPACED_MEMBER.sub(rb"\2\1", _NO_NAMES.sub(_as_blank, b"".join(parts)))


def _as_blank(found: re.Match[bytes]) -> bytes:
    return b" " + b"\n" * found[0].count(b"\n")
