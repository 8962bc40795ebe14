"""A script whose run does nothing: it only defines functions and tables, none of which spyweb calls.

A guess from the text, for a warning: nothing is run.  A call, or a return, anywhere outside the functions is something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spyweb.specs.linting.lua_names import KEYWORDS
from spyweb.specs.linting.words import LuaText, line_at

CALLED = ("run", "on_state", "on_success", "on_error", "on_finally")  # globals that spyweb calls
_SHOWN = 3  # names
_SHOWN_LENGTH = 40  # characters of each

_COMPUTED = re.compile(rb"\b_(?:G|ENV)\b")
_TOKEN = re.compile(rb"[A-Za-z_]\w*+|\d[\w.]*+|\"\"|[^\s\w]")
_WORD = re.compile(rb"[A-Za-z_]")
_OPENERS = (b"function", b"if", b"do", b"repeat")
_CLOSERS = (b"end", b"until")
_ARGUMENTS = (b"(", b"{", b'""')
_ENDS_A_VALUE = (b")", b"]", b'""')


@dataclass(frozen=True, slots=True)
class Idle:
    line: int  # of the first definition
    reason: str


def find_idle(text: LuaText) -> Idle | None:
    """Return why a run of the script would do nothing, or None where it does something or that can't be told."""
    code = text.code
    names = _definitions(code) if not _COMPUTED.search(code) else {}
    if not names or any(name.decode() in CALLED and not found.is_local for name, found in names.items()):
        return None
    shown = [name.decode()[:_SHOWN_LENGTH] for name in list(names)[:_SHOWN]]
    told = ", ".join(shown) + (", …" if len(names) > _SHOWN else "")
    wish = "the global function run, and this one is local" if b"run" in names else "the global function run(ctx)"
    line = line_at(code, next(iter(names.values())).offset)
    return Idle(line, f"a run of this file does nothing: it only defines {told}; spyweb calls {wish}")


@dataclass(frozen=True, slots=True)
class _Definition:
    offset: int
    is_local: bool


def _definitions(code: bytes) -> dict[bytes, _Definition]:
    """Return the names that are defined outside all functions, where nothing else is done; no names where it is."""
    names: dict[bytes, _Definition] = {}
    blocks: list[bool] = []  # whether each that is open is a function
    first = before = b""
    functions = braces = defines = 0
    for token in _TOKEN.finditer(code):
        word = token[0]
        if functions == 0:
            if word == b"return" or (word in _ARGUMENTS and _is_callable(before)):
                return {}
            if word == b"=" and braces == 0 and _WORD.match(before) and first not in (b".", b":"):
                names.setdefault(before, _Definition(token.start(), first == b"local"))
            braces += (word == b"{") - (word == b"}")
            defines += word == b"{"
        elif functions == 1 and before == b"function" and _WORD.match(word):
            names.setdefault(word, _Definition(token.start(), first == b"local"))
        if word in _OPENERS:
            blocks.append(word == b"function")
            functions += blocks[-1]
            defines += blocks[-1]
        elif word in _CLOSERS and blocks:
            functions -= blocks.pop()
        first, before = before, word
    return names if defines else {}


def _is_callable(before: bytes) -> bool:
    return before in _ENDS_A_VALUE or (bool(_WORD.match(before)) and before not in KEYWORDS)
