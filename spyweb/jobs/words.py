"""The words of a Lua file, for guesses about what it does: nothing is run.  Any text is fine."""

from __future__ import annotations

import re
from collections.abc import Iterator

TEXT = b'""'  # stands for every string

_TOKEN = re.compile(
    rb"(?P<skip>\s+|--(?!\[=*\[)[^\n]*)"
    rb"|(?P<long>(?:--)?\[(?P<level>=*)\[)"
    rb"|(?P<text>\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?)"  # one that nobody closes ends with its line
    rb"|(?P<word>[A-Za-z_][A-Za-z0-9_]*|[=~<>]=|.)",
    re.DOTALL,
)


def words_of(source: bytes) -> Iterator[tuple[bytes, int]]:
    """Each word or sign with its offset; no comments."""
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
            yield TEXT, token.start()
        elif token["word"] is not None:
            yield token["word"], token.start()


def line_at(source: bytes, offset: int) -> int:
    return source.count(b"\n", 0, offset) + 1
