"""Whether a Lua file both defines and calls its global `run`: spyweb calls it, so the script's own call runs twice.

A guess from the file's words, for a warning: nothing is run, and a text that is not Lua gives no answer.
"""

from __future__ import annotations

import re

from spyweb.specs.linting.words import TEXT, line_at, words_of

_CALL_LIKE = re.compile(rb"\brun\s*[({\"'\[]")
_OPENERS = (b"function", b"if", b"do", b"repeat")
_CLOSERS = (b"end", b"until")
_ARGUMENTS = (b"(", b"{", TEXT)


def find_own_call(source: bytes) -> int | None:
    """The line on which the chunk calls the `run` that it defines."""
    if len(_CALL_LIKE.findall(source)) < 2 and b"run =" not in source:  # the definition looks like a call too
        return None
    defined, call, depth = False, None, 0
    trail = (b"", b"", b"", 0)  # the two words before, the word and its offset
    for after, after_offset in words_of(source):
        first, before, word, offset = trail
        if word == b"run":
            defined = defined or _defines(first, before, after, depth)
            if call is None and depth == 0 and after in _ARGUMENTS and before not in (b".", b":"):
                call = offset
        depth += (after in _OPENERS) - (after in _CLOSERS)
        trail = (before, word, after, after_offset)
    return line_at(source, call) if defined and call is not None else None


def _defines(first: bytes, before: bytes, after: bytes, depth: int) -> bool:
    """`function run` or `run =`, at the top and not local."""
    if before == b"function":
        return depth == 1 and first != b"local"
    return depth == 0 and after == b"=" and before not in (b".", b":", b"local")
