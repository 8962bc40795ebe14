"""Colour Lua: each line as pieces of text with the class that the style sheet knows.

Pygments is slow to import, and to colour a long file takes a while: both belong into a thread.
"""

from __future__ import annotations

from msgspec import Struct
from pygments.lexers.scripting import LuaLexer
from pygments.token import Comment, Keyword, Literal, Name, Operator, _TokenType

LONGEST_LINE = 1_000  # characters
MOST_LINES = 10_000

_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (Keyword, "kw"),
    (Operator.Word, "kw"),
    (Literal.String, "st"),
    (Literal.Number, "nu"),
    (Name.Function, "fn"),
)


class SourceLine(Struct, frozen=True, kw_only=True):
    """One line of a file."""

    number: int
    pieces: tuple[tuple[str, str], ...]  # class, which may be empty, and text
    is_here: bool = False  # the line that is meant


def colour(text: str, *, first: int = 1, here: int | None = None) -> list[SourceLine]:
    """Colour a text whose first line has this number; a very long one is cut off."""
    lines = text.split("\n")[:MOST_LINES]
    if lines and not lines[-1]:
        lines.pop()
    shown = [line.rstrip("\r")[:LONGEST_LINE] for line in lines]
    coloured: list[list[tuple[str, str]]] = [[]]
    for kind, value in LuaLexer(stripnl=False, ensurenl=False).get_tokens("\n".join(shown)):
        name = next((name for known, name in _CLASSES if kind in known), "")
        for i, part in enumerate(value.split("\n")):
            if i:
                coloured.append([])
            if part:
                coloured[-1].append((name, part))
    return [
        SourceLine(number=number, pieces=tuple(pieces), is_here=number == here)
        for number, pieces in enumerate(coloured[: len(shown)], first)
    ]
