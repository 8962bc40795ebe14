"""Patterns of keys: `*` is any run of characters, `?` one character, all others stand for themselves.

A character is one of UTF-8, or a single byte where the key is not UTF-8.  SQLite's GLOB is not used: it ends at a NUL,
knows brackets, and takes time without bound for a pattern of many stars.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from spyweb.errors import StoreError
from spyweb.limits import PATTERN, too_large

STAR, ONE = "*", "?"


@dataclass(frozen=True, slots=True)
class Pattern:
    prefix: bytes  # what every match begins with
    is_prefix: bool  # everything that begins so matches
    expression: re.Pattern[str]

    def matches(self, key: bytes) -> bool:
        if not key.startswith(self.prefix):
            return False
        return self.is_prefix or self.expression.fullmatch(as_characters(key)) is not None


def excess(pattern: bytes) -> str | None:
    """Say why a pattern is too long, if it is."""
    return too_large("a pattern", len(pattern), PATTERN) if len(pattern) > PATTERN else None


@lru_cache(maxsize=512)
def compile_pattern(pattern: bytes) -> Pattern:
    """Raise StoreError for a pattern that is too long; what people can write to is asked `excess` first."""
    if (reason := excess(pattern)) is not None:
        raise StoreError(reason)
    characters = as_characters(pattern)
    literal = "".join(takewhile(lambda character: character not in (STAR, ONE), characters))
    prefix = literal.encode("utf-8", "surrogateescape")
    return Pattern(prefix, characters == literal + STAR, re.compile(translate(characters), re.DOTALL))


def translate(characters: str) -> str:
    """Each star takes as little as will do and never tries again, which is enough, and linear: only the last can
    need more, and is followed by what must end the key."""
    first, *rest = [translate_piece(piece) for piece in re.split(r"\*+", characters)]
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>.*?{piece})" for piece in middle) + ".*" + last


def translate_piece(piece: str) -> str:
    return "".join("." if character == ONE else re.escape(character) for character in piece)


def as_characters(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the least key that is greater than all that begin so; None when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
