"""Read from the words of a Lua file which names it defines, which globals it uses, what it does outside functions.

One pass that counts blocks and brackets, no parser: nothing is run, any text will do, and each word costs the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from spyweb.specs.linting.names import ABSENT_FAMILIES, GLOBALS, KEYWORDS, MEMBERS

TEXT = b'""'  # stands for a long string
QUOTES = (b'"', b"'")

_WORD = re.compile(
    rb"\s*+(?:(?P<long>(?:--)?\[(?P<level>=*+)\[)"
    rb"|(?P<comment>--[^\n]*+)"
    rb"|(?P<word>\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?"  # one that nobody closes ends with its line
    rb"|`(?:[^`\\]|\\.)*+`?"  # Luau's
    rb"|[A-Za-z_]\w*+|\.?\d(?:[eEpP][+-]|[\w.])*+"
    rb"|//=|\.\.=|\.\.\.|\.\.|[-+*/%^~=<>]=|::|->|//|.))",
    re.DOTALL,
)


def words_of(source: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each word or sign with its offset, without comments; a short string as it is written."""
    position = 0
    while found := _WORD.match(source, position):
        position = found.end()
        if found["word"] is not None:
            yield found["word"], found.start("word")
        elif found["long"] is not None:
            closing = b"]" + found["level"] + b"]"
            end = source.find(closing, position)
            if end < 0:
                return
            position = end + len(closing)
            if not found["long"].startswith(b"--"):
                yield TEXT, found.start("long")


def is_name(word: bytes) -> bool:
    return word[:1].isalpha() or word[:1] == b"_"


def line_at(source: bytes, offset: int) -> int:
    return source.count(b"\n", 0, offset) + 1


EDGE = 4  # empty words before and after those of the file, so that each has neighbours
BRACKETS = (b"(", b"{", b"[")
_CALLS = (b"(", b"{", TEXT)  # after what is called
_USES = (*_CALLS, b".", b":", b"[")  # after a name from which something is taken
_NO_VARIABLE = (b".", b":", b"::", b"goto")  # before such a name
_BEFORE_A_TEST = (b"if", b"elseif", b"while", b"until", b"not", b"and", b"or", b"==", b"~=")
_AFTER_A_TEST = (b"then", b"do", b"and", b"or", b"==", b"~=")
_ALWAYS = GLOBALS | {b"self"}


class Use(NamedTuple):
    name: bytes  # of a global, or `table.member`
    offset: int
    is_test: bool  # whether there is such a name


class Definition(NamedTuple):
    offset: int
    is_local: bool


class _Block(NamedTuple):
    word: bytes  # that opens it: `function`, or `for` until its `do`, or `(`
    names: list[bytes]  # parameters, or variables of the loop


def _is_variable(word: bytes) -> bool:
    return is_name(word) and word not in KEYWORDS


class LuaFile:
    """A Lua file, with its use of names as far as its text shows."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.defined = set[bytes]()  # globals, locals of any block, and `table.member`
        self.uses = list[Use]()  # of what spyweb does not define and no parameter or variable of a loop is
        self.taken = set[bytes]()  # names that are called, or whose members are used
        self.mentions = Counter[bytes]()  # of each name
        self.functions = list[tuple[bytes, int]]()  # global ones, with their offsets
        self.required = list[tuple[bytes, int]]()  # modules
        self.is_computed = False  # it reaches globals or modules by names that are not written here
        self.outside: dict[bytes, Definition] = {}  # defined outside all functions
        self.called_outside = set[bytes]()  # the last words of what is called outside all functions
        self.makes = set[bytes]()  # `function` anywhere, and `{` outside all functions
        self.returns: tuple[bytes, int] | None = None  # outside all functions: a table `{`, the name of one, or `?`
        self.run_call: int | None = None  # of `run`, outside all blocks
        words = list(words_of(source))
        self.words = [b""] * EDGE + [word for word, _ in words] + [b""] * EDGE
        self.offsets = [0] * EDGE + [offset for _, offset in words] + [len(source)] * EDGE
        self._blocks = list[_Block]()
        self._open = Counter[bytes]()  # blocks, by their word
        self._bound = Counter[bytes]()  # parameters and variables of loops that are in scope
        self._listed = list[bytes]()  # names with a comma behind: `a, b = 1, 2` defines both
        at = EDGE
        while at < len(self.words) - EDGE:
            word = self.words[at]
            if step := _STEPS.get(word):
                at = step(self, at) or at
            elif word[:1] in QUOTES:
                self._call(at)
            elif _is_variable(word):
                self._name(at)
            at += 1

    def line(self, offset: int) -> int:
        return line_at(self.source, offset)

    def _push(self, word: bytes, names: list[bytes]) -> None:
        self._blocks.append(_Block(word, names))
        self._open[word] += 1
        self._listed.clear()

    def _pop(self) -> _Block:
        self._listed.clear()
        block = self._blocks.pop() if self._blocks else _Block(b"", [])
        self._open[block.word] -= 1
        return block

    def _is_in(self, *words: bytes) -> bool:
        return bool(self._blocks) and self._blocks[-1].word in words

    def _begin(self, at: int) -> None:
        self._push(self.words[at], [])

    def _bracket(self, at: int) -> None:
        self._call(at)
        if self.words[at] == b"{" and not self._open[b"function"]:
            self.makes.add(b"{")
        self._begin(at)

    def _for(self, at: int) -> int:
        names, after = self._list(at + 1)
        self._push(b"for", names)
        return after - 1

    def _do(self, _: int) -> None:
        names = self._pop().names if self._is_in(b"for", b"while") else []
        self._bound.update(names)
        self._push(b"do", names)

    def _end(self, _: int) -> None:
        block = self._pop()
        if block.word != b"for":
            self._bound.subtract(block.names)

    def _function(self, at: int) -> None:
        name, dot, member = self.words[at + 1 : at + 4]
        is_local = self.words[at - 1] == b"local"
        if dot == b"(":
            self._define(name, at + 1, is_local=is_local, is_function=True)
        elif dot == b".":
            self._note_outside(name, at + 1, is_local=False)
            self.defined.add(b"%s.%s" % (name, member))
        at += 1
        while is_name(self.words[at]) and self.words[at + 1] in (b".", b":"):
            at += 2
        names, _ = self._list(at + 1 + is_name(self.words[at]))
        self.makes.add(b"function")
        self._bound.update(names)
        self._push(b"function", names)

    def _local(self, at: int) -> int:
        names, after = self._list(at + 1)
        for name in names:
            self._define(name, at + 1, is_local=True)
        return after - 1

    def _list(self, at: int) -> tuple[list[bytes], int]:
        """Return the names of a list, as in `local a <const>, b`, and where it ends."""
        names = list[bytes]()
        while _is_variable(self.words[at]):
            names.append(self.words[at])
            at += 4 if self.words[at + 1] == b"<" else 1
            if self.words[at] != b",":
                break
            at += 1
        return names, at

    def _assign(self, at: int) -> None:
        table, before, name, after = (self.words[at + step] for step in (-3, -2, -1, 1))
        self.defined.update(self._listed)
        self._listed.clear()
        if before == b".":
            self.defined.add(b"%s.%s" % (table, name))
        elif is_name(name) and self._is_in(b"{"):
            self.defined.add(name)
        elif is_name(name) and before not in (b":", b"for", b"local"):
            self._define(name, at - 1, is_local=False, is_function=after == b"function")

    def _define(self, name: bytes, at: int, *, is_local: bool, is_function: bool = False) -> None:
        self.defined.add(name)
        self._note_outside(name, at, is_local=is_local)
        if is_function and not is_local:
            self.functions.append((name, self.offsets[at]))

    def _note_outside(self, name: bytes, at: int, *, is_local: bool) -> None:
        if not self._open[b"function"]:
            self.outside.setdefault(name, Definition(self.offsets[at], is_local))

    def _return(self, at: int) -> None:
        value, after = self.words[at + 1 : at + 3]
        if not self._open[b"function"]:
            is_table = not self._blocks and (value == b"{" or (_is_variable(value) and after in (b"", b";")))
            self.returns = value if is_table else b"?", self.offsets[at]

    def _call(self, at: int) -> None:
        """Note a call that begins here, if the word before can be called."""
        before = self.words[at - 1]
        is_value = before in (b")", b"]", TEXT) or before[:1] in QUOTES or _is_variable(before)
        if is_value and self.words[at] != b"[" and not self._open[b"function"]:
            self.called_outside.add(before)

    def _name(self, at: int) -> None:
        before, word, after = self.words[at - 1 : at + 2]
        self.mentions[word] += 1
        if before in _NO_VARIABLE or self._bound[word] > 0:
            return
        if after == b"," and not self._is_in(*BRACKETS):
            self._listed.append(word)
        if self._is_taken(at):
            self.taken.add(word)
        if word == b"run" and self.run_call is None and (after in _CALLS or after[:1] in QUOTES):
            is_in_block = len(self._blocks) > sum(self._open[bracket] for bracket in BRACKETS)
            self.run_call = None if is_in_block else self.offsets[at]
        self._global(at)

    def _is_taken(self, at: int) -> bool:
        return self.words[at + 1] in _USES or self.words[at + 1][:1] in QUOTES

    def _global(self, at: int) -> None:
        word, after, member = self.words[at : at + 3]
        if word in (b"_G", b"_ENV"):
            if after == b"." and is_name(member):
                self.defined.add(member)
            else:
                self.is_computed = True
        elif word == b"require":
            self._require(at)
        self.is_computed |= word in (b"load", b"loadstring")
        known = MEMBERS.get(word)
        is_absent = word in ABSENT_FAMILIES or (after == b"." and known is not None and member not in known)
        if after in (b".", b":") and is_name(member) and is_absent:
            self._use(b"%s.%s" % (word, member), at, at + 2)
        elif word not in _ALWAYS or (word in ABSENT_FAMILIES and self._is_taken(at)):
            self._use(word, at, at)

    def _require(self, at: int) -> None:
        at += self.words[at + 1] == b"("
        name, after = self.words[at + 1 : at + 3]
        if name[:1] in QUOTES and len(name) > 2 and after != b"..":
            self.required.append((name[1:-1], self.offsets[at]))
        else:
            self.is_computed = True

    def _use(self, name: bytes, at: int, end: int) -> None:
        before, after = self.words[at - 1], self.words[end + 1]
        asks = before in _BEFORE_A_TEST or after in _AFTER_A_TEST or self.words[at - 2 : at] == [b"type", b"("]
        self.uses.append(Use(name, self.offsets[at], asks and not self._is_taken(end)))


_STEPS: Mapping[bytes, Callable[[LuaFile, int], int | None]] = {
    **dict.fromkeys((b"if", b"repeat", b"while"), LuaFile._begin),
    **dict.fromkeys(BRACKETS, LuaFile._bracket),
    **dict.fromkeys((b"end", b"until", b")", b"}", b"]"), LuaFile._end),
    b"for": LuaFile._for, b"do": LuaFile._do, b"function": LuaFile._function, b"local": LuaFile._local,
    b"=": LuaFile._assign, b"return": LuaFile._return, TEXT: LuaFile._call,
}  # fmt: skip
