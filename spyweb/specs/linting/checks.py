"""Find code without effect: a family that does not exist, a call of the job's own `run`, a run that does nothing.

Guesses from the file's words, for warnings: nothing is run, and a text that is not Lua gives no answer.
"""

from __future__ import annotations

import re

from msgspec import Struct

from spyweb.specs.linting.lua_text import TEXT, LuaText, line_at, words_of
from spyweb.specs.linting.names import KEYWORDS

_OPENERS = (b"function", b"if", b"do", b"repeat")
_CLOSERS = (b"end", b"until")

ABSENT_FAMILIES = (b"cdp",)

_USE_LIKE = re.compile(rb"\b(?:" + b"|".join(ABSENT_FAMILIES) + rb")\s*[.:({\"'\[]")
_USES = (b".", b":", b"(", b"{", TEXT)
_MEMBERS = (b".", b":")
_NOTHING = (b"", 0)


def find_absent(source: bytes) -> list[tuple[int, str]]:
    """Return the first use of each family that does not exist, with its line: `cdp.open`, `exec`."""
    if not _USE_LIKE.search(source):
        return []
    own: set[bytes] = set()
    used: dict[bytes, tuple[int, str]] = {}
    words = [_NOTHING, *words_of(source), _NOTHING, _NOTHING]
    for (before, _), (word, offset), (after, _), (member, _) in zip(
        words, words[1:], words[2:], words[3:], strict=False
    ):
        if word not in ABSENT_FAMILIES or before in _MEMBERS:
            continue
        if _defines_family(before, after):
            own.add(word)
        elif after in _USES:
            name = b"%s.%s" % (word, member) if after in _MEMBERS else word
            used.setdefault(word, (line_at(source, offset), name.decode("utf-8", "replace")))
    return [use for family, use in used.items() if family not in own]


def _defines_family(before: bytes, after: bytes) -> bool:
    """Return whether a variable, a function, a loop's variable or a parameter of that name begins here."""
    if before in (b"local", b"function", b"for") or after in (b"=", b"in"):
        return True
    return before in (b"(", b",") and after in (b")", b",")


_CALL_LIKE = re.compile(rb"\brun\s*[({\"'\[]")
_CALL_ARGUMENTS = (b"(", b"{", TEXT)


def find_own_call(source: bytes) -> int | None:
    """Return the line on which the chunk calls its own `run`, which would then run twice."""
    if len(_CALL_LIKE.findall(source)) < 2 and b"run =" not in source:  # the definition looks like a call too
        return None
    defined, call, depth = False, None, 0
    trail = (b"", b"", b"", 0)  # the two words before, the word and its offset
    for after, after_offset in words_of(source):
        first, before, word, offset = trail
        if word == b"run":
            defined = defined or _defines_run(first, before, after, depth)
            if call is None and depth == 0 and after in _CALL_ARGUMENTS and before not in (b".", b":"):
                call = offset
        depth += (after in _OPENERS) - (after in _CLOSERS)
        trail = (before, word, after, after_offset)
    return line_at(source, call) if defined and call is not None else None


def _defines_run(first: bytes, before: bytes, after: bytes, depth: int) -> bool:
    """Return whether this is `function run` or `run =`, at the top and not local."""
    if before == b"function":
        return depth == 1 and first != b"local"
    return depth == 0 and after == b"=" and before not in (b".", b":", b"local")


CALLED = ("run", "on_state", "on_success", "on_error", "on_finally", "on_down", "on_up")  # globals that spyweb calls
TASK_TABLES = (b"ModernDSLs", b"TaskDefinitions")  # globals that tasks are read from
_SHOWN = 3  # names
_SHOWN_LENGTH = 40  # characters of each

_COMPUTED = re.compile(rb"\b_(?:G|ENV)\b")
_TOKEN = re.compile(rb"[A-Za-z_]\w*+|\d[\w.]*+|\"\"|[^\s\w]")
_WORD = re.compile(rb"[A-Za-z_]")
_ARGUMENTS = (b"(", b"{", b'""')
_ENDS_A_VALUE = (b")", b"]", b'""')


class Idle(Struct, frozen=True):
    line: int  # of the first definition
    reason: str


def find_idle(text: LuaText) -> Idle | None:
    """Return why a run of the script would do nothing, or None where it does something or that is uncertain."""
    code = text.code
    if line := _returned_functions(code):
        return Idle(line, "a run of this file does nothing: it returns a table of functions, which nobody calls")
    names = _definitions(code) if not _COMPUTED.search(code) else {}
    if not names or any(_is_ours(name) and not found.is_local for name, found in names.items()):
        return None
    shown = [name.decode()[:_SHOWN_LENGTH] for name in list(names)[:_SHOWN]]
    listed = ", ".join(shown) + (", …" if len(names) > _SHOWN else "")
    wanted = "the global function run, and this one is local" if b"run" in names else "the global function run(ctx)"
    line = line_at(code, next(iter(names.values())).offset)
    return Idle(line, f"a run of this file does nothing: it only defines {listed}; spyweb calls {wanted}")


def _returned_functions(code: bytes) -> int | None:
    """Return the line on which a file that defines no `run` ends by returning a table with functions: a module."""
    found = _RETURNED_TABLE.search(code)
    if found is None or not re.search(rb"\bfunction\b", code[found.start() :]) or _CALLED_GLOBAL.search(code):
        return None
    depth = 0
    for token in _TOKEN.finditer(code, found.start()):
        depth += (token[0] == b"{") - (token[0] == b"}")
        if depth == 0 and token[0] == b"}":
            is_last = not code[token.end() :].strip(b" \t\r\n;")
            return line_at(code, found.start()) if is_last else None
    return None


_RETURNED_TABLE = re.compile(rb"^return\s*+\{", re.MULTILINE)
_CALLED_GLOBAL = re.compile(rb"^(?:function\s++)?(?:" + "|".join(CALLED).encode() + rb")\s*+[(=]", re.MULTILINE)


def _is_ours(name: bytes) -> bool:
    """Return whether spyweb calls a global of this name, or reads tasks from it."""
    return name.decode() in CALLED or name in TASK_TABLES


_DECLARATION = re.compile(
    rb"(?<![\w.:])(?:task\s*+[({\"]|workflow\s*+[.(\"]|ModernDSLs\s*+=(?!=)|TaskDefinitions\s*+=(?!=))"
)


def find_run_beside_tasks(text: LuaText) -> int | None:
    """Return the line that defines `run` in a file that declares tasks: they would never run."""
    if not _DECLARATION.search(text.code) or re.search(rb"\blocal\s++(?:function\s++)?(?:task|workflow)\b", text.code):
        return None
    depth = seen = 0
    for found in _RUN_DEFINED.finditer(text.code):
        depth += text.code.count(b"{", seen, found.start()) - text.code.count(b"}", seen, found.start())
        seen = found.start()
        if depth <= 0:  # else it is a field, as of `task{run = …}`
            return line_at(text.code, seen)
    return None


_RUN_DEFINED = re.compile(rb"^(?:function\s++run\s*+\(|run\s*+=(?!=))", re.MULTILINE)


class _Definition(Struct, frozen=True):
    offset: int
    is_local: bool


def _definitions(code: bytes) -> dict[bytes, _Definition]:
    """Return the names that are defined outside all functions, or none where more than that is done there."""
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
