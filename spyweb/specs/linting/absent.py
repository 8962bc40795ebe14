"""Which families of SpyWeb and sloth-runner a Lua file uses that this version does not have: a use raises an error.

A guess from the file's words, for a warning: nothing is run, and what the file defines itself is its own.
"""

from __future__ import annotations

import re

from spyweb.specs.linting.words import TEXT, line_at, words_of

FAMILIES = (b"cdp", b"task", b"workflow", b"exec", b"cmd", b"file", b"template")

_USE_LIKE = re.compile(rb"\b(?:" + b"|".join(FAMILIES) + rb")\s*[.:({\"'\[]")
_USES = (b".", b":", b"(", b"{", TEXT)
_MEMBERS = (b".", b":")
_NOTHING = (b"", 0)


def find_absent(source: bytes) -> list[tuple[int, str]]:
    """The first use of each, with its line: `cdp.open`, `exec`."""
    if not _USE_LIKE.search(source):
        return []
    own: set[bytes] = set()
    used: dict[bytes, tuple[int, str]] = {}
    words = [_NOTHING, *words_of(source), _NOTHING, _NOTHING]
    for (before, _), (word, offset), (after, _), (member, _) in zip(
        words, words[1:], words[2:], words[3:], strict=False
    ):
        if word not in FAMILIES or before in _MEMBERS:
            continue
        if _defines(before, after):
            own.add(word)
        elif after in _USES:
            name = b"%s.%s" % (word, member) if after in _MEMBERS else word
            used.setdefault(word, (line_at(source, offset), name.decode("utf-8", "replace")))
    return [use for family, use in used.items() if family not in own]


def _defines(before: bytes, after: bytes) -> bool:
    """A variable, a function, a loop's variable or a parameter of that name."""
    if before in (b"local", b"function", b"for") or after in (b"=", b"in"):
        return True
    return before in (b"(", b",") and after in (b")", b",")
