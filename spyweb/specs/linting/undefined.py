"""Find names that a script uses and nothing defines: misspelt functions, or Lua's own that scripts don't have.

A guess from the text, for a warning: nothing is run, and every doubt is in favour of the script.  A name counts as
defined where anything of that name is: a variable of any block, a parameter, a key of a table.  A name that the script
asks for (`if name then`) may be absent.  Of a file that reaches its globals by computed names nothing is said.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches

from msgspec import Struct

from spyweb.specs.linting.lua_text import LuaText, line_at, words_of
from spyweb.specs.linting.names import ABSENT, GLOBALS, INSTEAD, KEYWORDS, MEMBERS

ReadModule = Callable[[bytes], bytes | None]  # the source of a module by its name

FEW = 20  # findings of one file: more say nothing new
_LONGEST = 80  # characters that are shown of a name
CLOSE = 0.8  # how similar a name must be to be suggested

_NAME = rb"[A-Za-z_]\w*+"
_USED = re.compile(rb"(?<![\w:])(?<!(?<!\.)\.)" + _NAME)
_ALWAYS = KEYWORDS | GLOBALS | {b"self"}
_MEMBER = re.compile(rb"(?<![\w:])(?<!(?<!\.)\.)(" + rb"|".join(MEMBERS) + rb")\.(" + _NAME + rb")")
_BOUND = tuple(
    re.compile(pattern)
    for pattern in (
        rb"\blocal\s++((?:function\s++)?" + _NAME + rb"(?:\s*+,\s*+" + _NAME + rb")*+)",
        rb"\bfunction\b[\w\s.:]{0,200}+\(([\w\s,.]{0,2000}+)\)",
        rb"\bfunction\s++(" + _NAME + rb")\s*+\(",
        rb"(?<![\w.:])(" + _NAME + rb")\s*+=(?!=)",
        rb"(?<![\w.:])(" + _NAME + rb")\s*+,(?=[\w\s,.:\[\]\"'-]{0,300}+=(?!=))",
        rb"\b_(?:G|ENV)\s*+\.\s*+(" + _NAME + rb")",
    )
)
_FLOW = re.compile(rb"\bfor\s++(?P<bound>" + _NAME + rb"(?:\s*+,\s*+" + _NAME + rb")*+)|" + _USED.pattern)
_OPENING, _CLOSING = frozenset((b"function", b"if", b"do", b"repeat")), frozenset((b"end", b"until"))
_MEMBER_BOUND = (
    re.compile(rb"(?<![\w.:])(" + _NAME + rb"\." + _NAME + rb")\s*+=(?!=)"),
    re.compile(rb"\bfunction\s++(" + _NAME + rb"\." + _NAME + rb")"),
)
_DYNAMIC = re.compile(rb"(?<![\w.:])(?:_(?:G|ENV)\b(?!\s*+\.\s*+[A-Za-z_])|load\b|loadstring\b)")
_REQUIRE = re.compile(rb"(?<![\w.:])require\b(\s*+\(?\s*+\"\")?+")
_REQUIRED = re.compile(rb"(?<![\w.:])require\s*+\(?\s*+(?:\"([^\"\n]*+)\"|'([^'\n]*+)')")
_BEFORE_A_TEST = frozenset((b"if", b"elseif", b"while", b"until", b"not", b"and", b"or", b"==", b"~="))
_BEFORE = re.compile(rb"(\w++|==|~=|\btype\s*+\()\s*+\Z")
_AFTER_A_TEST = re.compile(rb"\s*+(?:then\b|do\b|and\b|or\b|==|~=)")
_AFTER_A_USE = re.compile(rb"\s*+[.:(\[{\"]")
_BYTES_BEFORE = 60  # that are looked at before a name


class Undefined(Struct, frozen=True):
    line: int
    reason: str


def find_undefined(
    text: LuaText, others: Sequence[LuaText] = (), *, read: ReadModule, known: frozenset[bytes] = frozenset()
) -> list[Undefined]:
    """Return where a file uses a name that neither it nor what is loaded with it defines.

    The others are loaded into the same VM; `read` gives the source of a required module.
    """
    code = text.code
    used = set(_USED.findall(code)) - _ALWAYS - known
    absent = {use for use in set(_MEMBER.findall(code)) if use[1] not in MEMBERS[use[0]]}
    if not used and not absent:
        return []
    names = used | {b".".join(use) for use in absent}
    for loaded in _loaded([text, *others], read):
        if loaded is None:
            return []
        defined = _defined(loaded)
        names = {name for name in names if defined.isdisjoint((name, name.partition(b".")[0]))}
    first = _first_uses(_without_loop_variables(code, names), names)
    return [Undefined(line, _reason(name.decode(), known)) for line, name in first]


def find_absent_modules(text: LuaText, *, read: ReadModule) -> list[Undefined]:
    """Return where a file first requires each module of sloth-runner that is not there."""
    if not any(_is_absent(one or other) for one, other in _REQUIRED.findall(text.source)):
        return []
    words = list(words_of(text.source))
    first: dict[str, int] = {}
    for (before, _), (word, offset) in zip([(b"", 0), *words], words, strict=False):
        found = _REQUIRED.match(text.source, offset) if word == b"require" and before not in (b".", b":") else None
        name = (found[1] or found[2]) if found else b""
        if _is_absent(name) and read(name) is None:
            first.setdefault(name.decode(), line_at(text.source, offset))
    return [Undefined(line, _absence(name)) for name, line in first.items()]


def _is_absent(module: bytes) -> bool:
    return module.decode("latin-1") in ABSENT


def _absence(name: str) -> str:
    use = ABSENT[name]
    return f"sloth-runner's {name} is not part of this version" + (f": {use}" if use else "")


def _loaded(texts: Sequence[LuaText], read: ReadModule) -> Iterator[bytes | None]:
    """Yield the code of everything that defines names for these files; None where that can't be told."""
    waiting, seen = deque(texts), set[bytes]()
    while waiting:
        text = waiting.popleft()
        is_computed = _DYNAMIC.search(text.code) or not all(_REQUIRE.findall(text.code))
        yield None if is_computed else text.code
        for name in (one or other for one, other in _REQUIRED.findall(text.source)):
            if name not in seen and len(seen) < FEW:
                seen.add(name)
                waiting += [LuaText(source) for source in (read(name),) if source]


def _defined(code: bytes) -> set[bytes]:
    """Return the names that any block of the code assigns: `name`, and `table.name`."""
    found = {name for pattern in _BOUND for names in pattern.findall(code) for name in _USED.findall(names)}
    return found.union(*(pattern.findall(code) for pattern in _MEMBER_BOUND))


def _without_loop_variables(code: bytes, names: Collection[bytes]) -> bytes:
    """Return the code with `0` for the variables of each loop, in its head and body: elsewhere they are not there."""
    hidden, blocks, head = bytearray(code), list[set[bytes]](), set[bytes]()
    in_scope = Counter[bytes]()
    for found in _FLOW.finditer(code):
        word = found[0]
        if found["bound"]:
            head = {name for name in _USED.findall(found["bound"]) if name in names}
            _hide(hidden, found.span("bound"), head)
        elif word in _OPENING:
            blocks.append(head if word == b"do" else set())
            in_scope.update(blocks[-1])
            head = set() if word == b"do" else head
        elif word in _CLOSING and blocks:
            in_scope.subtract(blocks.pop())
        elif in_scope[word]:
            _hide(hidden, found.span(), {word})
    return bytes(hidden)


def _hide(hidden: bytearray, span: tuple[int, int], names: set[bytes]) -> None:
    for name in _USED.finditer(bytes(hidden[slice(*span)])):
        if name[0] in names:
            start = span[0] + name.start()
            hidden[start : start + len(name[0])] = b"0" * len(name[0])


def _first_uses(code: bytes, names: Collection[bytes]) -> list[tuple[int, bytes]]:
    """Return where each name is first used, without the names whose existence the script tests."""
    first: dict[bytes, int] = {}
    asked: set[bytes] = set()
    for pattern in (_USED, _MEMBER):
        for use in pattern.finditer(code):
            if use[0] in names:
                first.setdefault(use[0], use.start())
                asked.update([use[0]] if _is_asked_for(code, use) else [])
    found = sorted((offset, name) for name, offset in first.items() if name not in asked)
    return [(line_at(code, offset), name) for offset, name in found[:FEW]]


def _is_asked_for(code: bytes, use: re.Match[bytes]) -> bool:
    """Return whether this use only tests if the name exists, and takes nothing from it."""
    if _AFTER_A_USE.match(code, use.end()):
        return False
    before = _BEFORE.search(code, max(0, use.start() - _BYTES_BEFORE), use.start())
    word = before[1] if before else b""
    return word in _BEFORE_A_TEST or word.endswith(b"(") or _AFTER_A_TEST.match(code, use.end()) is not None


def _reason(name: str, known: frozenset[bytes]) -> str:
    if name in ABSENT:
        return f"nobody defines {name}; {_absence(name)}"
    instead = INSTEAD.get(name) or INSTEAD.get(name.partition(".")[0])
    if instead:
        return f"scripts have no {name}: {instead}"
    table, dot, member = name.rpartition(".")
    there: Iterable[bytes] = MEMBERS.get(table.encode(), ()) if dot else GLOBALS | known
    close = get_close_matches(member[:_LONGEST], [each.decode() for each in there], n=1, cutoff=CLOSE)
    guess = f'; did you mean "{table}{dot}{close[0]}"?' if close else ""
    return f"nobody defines {name[:_LONGEST]}{guess}"
