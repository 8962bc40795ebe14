"""Split a Lua file into words, for guesses about what it does: nothing is run, and any text will do."""

from __future__ import annotations

import re
from collections.abc import Iterator

TEXT = b'""'  # stands for a long string
QUOTES = (b'"', b"'")

_WORD = re.compile(
    rb"\s*+(?:(?P<long>(?:--)?\[(?P<level>=*+)\[)"
    rb"|(?P<comment>--[^\n]*+)"
    rb"|(?P<word>\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?"  # one that nobody closes ends with its line
    rb"|`(?:[^`\\]|\\.)*+`?"  # Luau's
    rb"|[A-Za-z_]\w*+|\.?\d(?:[eEpP][+-]|[\w.])*+"
    rb"|//=|\.\.=|\.\.\.|\.\.|[-+*/%^~=<>]=|::|->|//|.))",
    re.DOTALL,
)


def words_of(source: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each word or sign with its offset, without comments; a short string as it is written."""
    position = 0
    while found := _WORD.match(source, position):
        position = found.end()
        if found["word"] is not None:
            yield found["word"], found.start("word")
        elif found["long"] is not None:
            closing = b"]" + found["level"] + b"]"
            end = source.find(closing, position)
            if end < 0:
                return
            position = end + len(closing)
            if not found["long"].startswith(b"--"):
                yield TEXT, found.start("long")


def is_name(word: bytes) -> bool:
    return word[:1].isalpha() or word[:1] == b"_"


def text_in(word: bytes) -> bytes:
    """Return what a short string holds, and nothing for any other word."""
    return word[1:-1] if word[:1] in QUOTES else b""


def line_at(source: bytes, offset: int) -> int:
    return source.count(b"\n", 0, offset) + 1
