"""Name the Luau-only construct that Lua 5.4 stumbled over, with what to write instead.

SpyWeb's scripts are often Luau.  Lua's own message ("syntax error near '+'") does not say so; a hint does.  It reads
words, so strings and comments mislead nobody; it judges the reported line and the word just before it, because Lua
notices a stray `continue` only at the next word; and it answers None rather than guess.  Any text is fine.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace

from spyweb.errors import Problem
from spyweb.specs.linting.lua_file import QUOTES, TEXT, words_of

_FAR = 200  # words before the line; a list of parameters is shorter
_LONG_LINE = 2000  # words; the rest of the line is not checked
_SHOWN = 40  # characters of a name or a number that a hint repeats
_NAME = r"[A-Za-z_]\w*…?"
_VALUE = r"return|and|or|not|[-+*/%^]=?|//=?|\.\.=?|[<>=~]=|[=(,{\[<>]"  # an expression begins after it
_HEAD = rf"function (?:{_NAME} (?:[.:] {_NAME} )*)?\("

# Each is matched with words, one blank between them; `at` is the part that must be on the line, or the word before it.
# The first has a hint of its own, in `_hint`.
_PATTERNS = {
    rf"(?:(?<= )(?<!\. )(?<!: )(?P<name>{_NAME}) )?"
    r"(?<= )(?P<at>(?P<sign>[-+*/%^]|//|\.\.)=) (?P<value>\w[\w.]*…?)?": "",
    rf"(?<= )(?!(?:\.|::?|goto|local|function|{_VALUE}) )\S+ (?P<at>continue) (?![=.\[(:,{{\"])": (
        "`continue` is Luau, not Lua 5.4: write goto continue, and ::continue:: before the end of the loop"
    ),
    r"(?P<at>`)": "a backtick string is Luau, not Lua 5.4: join with .. or use string.format",
    rf"(?<= )(?:{_VALUE}) (?P<at>if) ": (
        "an if-expression is Luau, not Lua 5.4: write an if statement, or a and b or c"
    ),
    rf"(?<= )(?<!\. )(?<!: )(?P<at>type) (?P<name>{_NAME}) [=<] ": (
        "`type {name}` is Luau, not Lua 5.4: leave the type declaration out"
    ),
    rf"(?<= )(?:(?:local|for) (?:{_NAME} , )*{_NAME}|{_HEAD} (?:[^()]*? )?{_NAME}|{_HEAD} (?:[^()]* )?\)) "
    rf"(?P<at>:) (?:(?P<name>{_NAME}) )?": "a type annotation is Luau, not Lua 5.4: leave `: {name}` out",
    # Lua takes `:: number` for a label that is not closed, and may notice only on the next line.
    rf"(?<= )(?!:: )\S+ \S+ (?P<at>:: (?:{_NAME}|[^\w\s\".`]\S*)) (?!:: )": (
        "a type cast is Luau, not Lua 5.4: leave `::` and the type out"
    ),
    r"(?<= )(?P<at>0[bB][01_]+…?|0[xX][\da-fA-F]*_[\da-fA-F_]*…?|\d+_[\d_.eE+-]*…?) ": (
        "the number {at} is Luau, not Lua 5.4: write it in decimal or 0x..., without _"
    ),
}
_COMPILED = [(re.compile(pattern, re.ASCII), hint) for pattern, hint in _PATTERNS.items()]


def explain(source: bytes, line: int) -> str | None:
    """Name the Luau construct on that line, or just before it, of a script that does not compile."""
    before, here, after = ("".join(f"{word} " for word in words) for words in _words_around(source, line))
    text = f" ; ; {before}{here}{after}"
    begin = len(text) - len(here) - len(after)
    end, word_before = begin + len(here), text.rfind(" ", 0, begin - 1) + 1
    found = [
        (each.end("at") <= begin, each.start("at"), _hint(each, hint))
        for look, hint in _COMPILED
        for each in look.finditer(text)
        if word_before < each.end("at") and each.start("at") < end
    ]
    return min(found)[2] if found else None


def with_hint(problem: Problem, source: bytes) -> Problem:
    """Add a hint to a compile problem whose cause is a Luau construct."""
    hint = explain(source, problem.line or 1)
    return replace(problem, reason=f"{problem.reason} ({hint})") if hint else problem


def _words_around(source: bytes, line: int) -> tuple[list[str], list[str], list[str]]:
    """Return the last words before the line, those on it, and two after it; of a string only that it is one."""
    before, here, after = deque[str](maxlen=_FAR), list[str](), list[str]()
    position, number = 0, 1
    for word, offset in words_of(source):
        number += source.count(b"\n", position, offset)
        position = offset
        if len(after) == 2 or len(here) > _LONG_LINE:
            break
        (before if number < line else here if number == line else after).append(_shown(word))
    return [*before], here, after


def _shown(word: bytes) -> str:
    if word[:1] in QUOTES or word == TEXT:
        return '""'
    text = "`" if word[:1] == b"`" else word.decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _hint(found: re.Match[str], hint: str) -> str:
    if hint:
        return hint.format(name=found.groupdict().get("name") or "...", at=found["at"])
    name, value = found["name"] or "x", found["value"] or "..."
    return f"`{found['at']}` is Luau, not Lua 5.4: write {name} = {name} {found['sign']} {value}"
