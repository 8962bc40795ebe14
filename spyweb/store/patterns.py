"""Match keys against patterns: `*` is any run of characters, `?` one character, all others themselves.

A character is one of UTF-8, or a single byte where the key is not UTF-8.  SQLite's GLOB is not used: it stops at a NUL,
supports brackets, and may take unlimited time for a pattern with many stars.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

from msgspec import Struct

from spyweb.errors import StoreError
from spyweb.limits import PATTERN, too_large

STAR, ONE = "*", "?"


class Pattern(Struct, frozen=True):
    prefix: bytes  # of every match
    is_prefix: bool  # every key with this prefix matches
    expression: re.Pattern[str]

    def matches(self, key: bytes) -> bool:
        if not key.startswith(self.prefix):
            return False
        return self.is_prefix or self.expression.fullmatch(as_characters(key)) is not None


def excess(pattern: bytes) -> str | None:
    """Return why a pattern is too long, or None."""
    return too_large("a pattern", len(pattern), PATTERN) if len(pattern) > PATTERN else None


@lru_cache(maxsize=512)
def compile_pattern(pattern: bytes) -> Pattern:
    """Compile a pattern.  Raises StoreError if it is too long; check people's input with `excess` first."""
    if (reason := excess(pattern)) is not None:
        raise StoreError(reason)
    characters = as_characters(pattern)
    literal = "".join(takewhile(lambda character: character not in (STAR, ONE), characters))
    prefix = literal.encode("utf-8", "surrogateescape")
    return Pattern(prefix, characters == literal + STAR, re.compile(translate(characters), re.DOTALL))


def translate(characters: str) -> str:
    """Translate a pattern to a regular expression that matches in linear time.

    Each star takes as little as possible and never tries again.  That is enough: only the last one can need more, and
    what follows it must end the key.
    """
    first, *rest = [re.escape(piece).replace(re.escape(ONE), ".") for piece in re.split(r"\*+", characters)]
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>.*?{piece})" for piece in middle) + ".*" + last


def as_characters(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest key after all keys with this prefix; None when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def is_within(patterns: Sequence[str], job: str) -> bool:
    """Return whether a key with these patterns may see a job; without any it may also see things of no job, ""."""
    if not patterns or not job:
        return not patterns
    return any(compile_pattern(each.encode()).matches(job.encode()) for each in patterns)
