"""Name the Luau-only construct that Lua 5.4 stumbled over, with what to write instead.

SpyWeb's scripts are often Luau.  Lua's own message ("syntax error near '+'") does not say so; a hint does.  It reads
tokens, so strings and comments mislead nobody; it judges the reported line and the token just before it, because Lua
notices a stray `continue` only at the next token; and it answers None rather than guess.  Any text is fine.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from msgspec import Struct

from spyweb.errors import Problem
from spyweb.specs.linting.lua_text import QUOTES, TEXT, is_name, words_of

_COMPOUND = {"+=", "-=", "*=", "/=", "//=", "%=", "^=", "..="}
_CONTINUES_A_NAME = {"=", ".", "[", "(", ":", ",", "{"}
_BEFORE_AN_EXPRESSION = {"=", "(", ",", "{", "[", "return", "and", "or", "not", "..", "<", ">", "<=", ">=", "==", "~="}
_BEFORE_AN_EXPRESSION |= {"+", "-", "*", "/", "//", "%", "^"} | _COMPOUND
_FAR = 200  # tokens; a list of parameters is shorter, and the search must not become quadratic
_LONG_LINE = 2000  # tokens; what follows is not looked at
_SHOWN = 40  # characters of a name or a number that a hint repeats
_NUMBER_OF_LUAU = re.compile(r"0[bB][01_]+|0[xX][\da-fA-F]*_[\da-fA-F_]*|\d++_[\d_.eE+-]*")


class _Token(Struct, frozen=True):
    kind: str
    text: str
    line: int


_END = _Token("sign", "", 0)
_Sentence = list[_Token]


def explain(source: bytes, line: int) -> str | None:
    """Name the Luau construct on that line, or just before it, of a script that does not compile."""
    tokens = _tokens_to(source, line)
    for at in _suspects(tokens, line):
        for look in _LOOKS:
            if hint := look(tokens, at):
                return hint
    return None


def with_hint(problem: Problem, source: bytes) -> Problem:
    """Add a hint to a compile problem whose cause is a Luau construct."""
    hint = explain(source, problem.line or 1)
    return replace(problem, reason=f"{problem.reason} ({hint})") if hint else problem


def _tokens_to(source: bytes, line: int) -> _Sentence:
    """Return the last tokens before the line, those on it, and the first one after it."""
    before: deque[_Token] = deque(maxlen=_FAR)
    tokens: _Sentence = []
    for token in _tokens(source):
        (before if token.line < line else tokens).append(token)
        if token.line > line or len(tokens) > _LONG_LINE + _FAR:
            break
    return [*before, *tokens]


def _suspects(tokens: _Sentence, line: int) -> list[int]:
    """Return the indexes of the line's tokens, then that of the last token before it."""
    on_line = [at for at, token in enumerate(tokens) if token.line == line]
    after_line = len(tokens) - (tokens[-1].line > line) if tokens else 0
    first = on_line[0] if on_line else after_line
    return on_line[:_LONG_LINE] + [first - 1] * (first > 0)


def _tokens(source: bytes) -> Iterator[_Token]:
    position, line = 0, 1
    for word, offset in words_of(source):
        line += source.count(b"\n", position, offset)
        position = offset
        yield _Token(_kind_of(word), word.decode("utf-8", "replace"), line)


def _kind_of(word: bytes) -> str:
    if is_name(word):
        return "word"
    if word[:1] in (*QUOTES, b"`") or word == TEXT:
        return "backtick" if word[:1] == b"`" else "text"
    return "number" if word[:2].strip(b".")[:1].isdigit() else "sign"


def _brief(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _near(tokens: _Sentence, at: int) -> _Token:
    return tokens[at] if 0 <= at < len(tokens) else _END


def _compound(tokens: _Sentence, at: int) -> str | None:
    sign = tokens[at].text
    if tokens[at].kind != "sign" or sign not in _COMPOUND:
        return None
    name = _near(tokens, at - 1)
    target = name.text if name.kind == "word" and _near(tokens, at - 2).text not in (".", ":") else "x"
    value = _near(tokens, at + 1)
    amount = value.text if value.kind in ("word", "number") else "..."
    target = _brief(target)
    return f"`{sign}` is Luau, not Lua 5.4: write {target} = {target} {sign[:-1]} {_brief(amount)}"


def _continue(tokens: _Sentence, at: int) -> str | None:
    before, after = _near(tokens, at - 1), _near(tokens, at + 1)
    if tokens[at].text != "continue" or before.text in (".", ":", "::", "goto", "local", "function", ","):
        return None
    if before.text in _BEFORE_AN_EXPRESSION or after.text in _CONTINUES_A_NAME or after.kind == "text":
        return None
    return "`continue` is Luau, not Lua 5.4: write goto continue, and ::continue:: before the end of the loop"


def _backtick(tokens: _Sentence, at: int) -> str | None:
    if tokens[at].kind != "backtick":
        return None
    return "a backtick string is Luau, not Lua 5.4: join with .. or use string.format"


def _if_expression(tokens: _Sentence, at: int) -> str | None:
    before = _near(tokens, at - 1)
    if tokens[at].text != "if" or before.kind == "text" or before.text not in _BEFORE_AN_EXPRESSION:
        return None
    return "an if-expression is Luau, not Lua 5.4: write an if statement, or a and b or c"


def _type_declaration(tokens: _Sentence, at: int) -> str | None:
    before, after, next_one = (_near(tokens, at + step) for step in (-1, 1, 2))
    if tokens[at].text != "type" or before.text in (".", ":") or after.kind != "word":
        return None
    if next_one.text not in ("=", "<"):
        return None
    return f"`type {_brief(after.text)}` is Luau, not Lua 5.4: leave the type declaration out"


def _annotation(tokens: _Sentence, at: int) -> str | None:
    if tokens[at].text != ":" or not (_in_name_list(tokens, at) or _in_parameters(tokens, at)):
        return None
    kind = _near(tokens, at + 1)
    shown = f": {_brief(kind.text)}" if kind.kind == "word" else ": ..."
    return f"a type annotation is Luau, not Lua 5.4: leave `{shown}` out"


def _in_name_list(tokens: _Sentence, at: int) -> bool:
    """Return whether a `:` follows a list of local names: `local a, b:` or `for a, b:`."""
    for _ in range(_FAR):
        if _near(tokens, at - 1).kind != "word" or _near(tokens, at - 2).text != ",":
            break
        at -= 2
    return _near(tokens, at - 1).kind == "word" and _near(tokens, at - 2).text in ("local", "for")


def _in_parameters(tokens: _Sentence, at: int) -> bool:
    """Return whether a `:` is a type in a function's head: `function f(a: number, b: {string}): boolean`."""
    before = _near(tokens, at - 1)
    if before.text == ")":
        return _opens_parameters(tokens, _opening(tokens, at - 1))
    return before.kind == "word" and _opens_parameters(tokens, _opening(tokens, at))


def _opening(tokens: _Sentence, at: int) -> int:
    """Return the index of the bracket that this token closes or is in; -1 when it is too far away."""
    depth = 0
    for index in range(at - 1, max(at - _FAR, -1), -1):
        text = tokens[index].text
        depth += (text in (")", "}", "]")) - (text in ("(", "{", "["))
        if depth < 0:
            return index
    return -1


def _opens_parameters(tokens: _Sentence, at: int) -> bool:
    """Return whether the parenthesis follows `function`, or `function` and a name."""
    if at < 0 or tokens[at].text != "(":
        return False
    at -= 1
    for _ in range(_FAR):
        if _near(tokens, at).kind != "word" or _near(tokens, at - 1).text not in (".", ":"):
            break
        at -= 2
    return "function" in (_near(tokens, at).text, _near(tokens, at - 1).text)


def _cast(tokens: _Sentence, at: int) -> str | None:
    """Detect a type cast: Lua takes `:: number` for an unclosed label, and may notice only on the next line."""
    if tokens[at].kind == "word" and _near(tokens, at - 1).text == "::":
        at -= 1
    if tokens[at].text != "::" or _near(tokens, at + 2).text == "::":
        return None
    if _near(tokens, at - 2).text == "::" or _near(tokens, at + 1).kind not in ("word", "sign"):
        return None
    return "a type cast is Luau, not Lua 5.4: leave `::` and the type out"


def _number(tokens: _Sentence, at: int) -> str | None:
    text = tokens[at].text
    if tokens[at].kind != "number" or not _NUMBER_OF_LUAU.fullmatch(text):
        return None
    return f"the number {_brief(text)} is Luau, not Lua 5.4: write it in decimal or 0x..., without _"


_LOOKS: tuple[Callable[[_Sentence, int], str | None], ...] = (
    _compound, _continue, _backtick, _if_expression, _type_declaration, _annotation, _cast, _number,
)  # fmt: skip
