"""Whether a Lua file both defines and calls its global `run`: spyweb calls it, so the script's own call runs twice.

A guess from the file's words, for a warning: nothing is run, and a text that is not Lua gives no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CALL_LIKE = re.compile(rb"\brun\s*[({\"'\[]")
_TOKEN = re.compile(
    rb"(?P<skip>\s+|--(?!\[=*\[)[^\n]*)"
    rb"|(?P<long>(?:--)?\[(?P<level>=*)\[)"
    rb"|(?P<text>\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')"
    rb"|(?P<word>[A-Za-z_][A-Za-z0-9_]*|[=~<>]=|.)",
    re.DOTALL,
)
_OPENERS = (b"function", b"if", b"do", b"repeat")
_CLOSERS = (b"end", b"until")
_TEXT = b'""'
_ARGUMENTS = (b"(", b"{", _TEXT)


def find_own_call(source: bytes) -> int | None:
    """The line on which the chunk calls the `run` that it defines."""
    if len(_CALL_LIKE.findall(source)) < 2 and b"run =" not in source:  # the definition looks like a call too
        return None
    defined, call, depth = False, None, 0
    trail = (b"", b"", b"", 0)  # the two words before, the word and its offset
    for after, after_offset in _words(source):
        first, before, word, offset = trail
        if word == b"run":
            defined = defined or _defines(first, before, after, depth)
            if call is None and depth == 0 and after in _ARGUMENTS and before not in (b".", b":"):
                call = offset
        depth += (after in _OPENERS) - (after in _CLOSERS)
        trail = (before, word, after, after_offset)
    return source.count(b"\n", 0, call) + 1 if defined and call is not None else None


def _defines(first: bytes, before: bytes, after: bytes, depth: int) -> bool:
    """`function run` or `run =`, at the top and not local."""
    if before == b"function":
        return depth == 1 and first != b"local"
    return depth == 0 and after == b"=" and before not in (b".", b":", b"local")


def _words(source: bytes) -> Iterator[tuple[bytes, int]]:
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
                yield _TEXT, token.start()
        elif token["text"] is not None:
            yield _TEXT, token.start()
        elif token["word"] is not None:
            yield token["word"], token.start()
