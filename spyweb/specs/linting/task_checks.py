"""Find faults of the tasks that a file declares by `task` and its methods, or in tables: misspelt methods, and circles.

Guesses from the file's words, for warnings: nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile

from spyweb.specs.linting.lua_file import BRACKETS, EDGE, LuaFile
from spyweb.specs.linting.lua_text import text_in
from spyweb.specs.linting.names import TASK_METHODS
from spyweb.specs.linting.undefined import FEW, LONGEST, nearest

SHOWN = 20  # tasks of a circle
_CLOSED = (b")", b"}", b"]")


def find_task_faults(file: LuaFile) -> Iterator[tuple[int, str]]:
    """Yield each fault with its line."""
    if not file.mentions[b"task"] and not file.mentions[b"depends_on"]:
        return
    read = TaskReader(file)
    for at in read.misspelt:
        method = file.words[at].decode("latin-1")
        if close := nearest(method, [each.decode() for each in TASK_METHODS]):
            yield file.line(file.offsets[at]), f'a task has no method {method[:LONGEST]}; did you mean "{close}"?'
    if circle := _find_circle(read.tasks, read.needs):
        shown = " -> ".join(name.decode("utf-8", "replace") for name in circle[:SHOWN])
        yield file.line(read.tasks[circle[0]]), f"these tasks depend on each other: {shown}"


class TaskReader:
    """Reads what a file declares: `tasks` has where each begins, `needs` what it depends on, both by name."""

    def __init__(self, file: LuaFile) -> None:
        self.tasks: dict[bytes, int] = {}
        self.needs: dict[bytes, list[bytes]] = {}
        self.misspelt: list[int] = []  # where methods are that tasks don't have
        self._words, self._offsets = file.words, file.offsets
        self._ends = _bracket_ends(file.words)
        self._variables: dict[bytes, bytes] = {}  # the name of the task that each holds
        self._names: dict[int, bytes] = {}  # of the task that a table is, by where it begins
        opened = [0]
        for at in range(EDGE, len(file.words) - EDGE):
            if file.words[at] in BRACKETS:
                opened.append(at)
            elif file.words[at] in _CLOSED:
                opened.pop()
                opened = opened or [0]
            elif file.words[at - 1] not in (b".", b":"):
                self._read(at, opened[-1])

    def _read(self, at: int, table: int) -> None:
        word, after = self._words[at : at + 2]
        name = self._text(at + 1 + (after == b"(")) if word == b"task" else b""
        if name:
            self.tasks[name] = self._offsets[at]
            if self._words[at - 1] == b"=":
                self._variables[self._words[at - 2]] = name
            self._read_methods(name, self._ends.get(at + 1, at + 1) + 1)
        elif word in self._variables:
            self._read_methods(self._variables[word], at + 1)
        elif after == b"=" and self._words[table] == b"{":
            self._read_key(at, table)

    def _read_key(self, at: int, table: int) -> None:
        key, _, value = self._words[at : at + 3]
        if key == b"name":
            self._names[table] = self._text(at + 2)
        elif key == b"depends_on" and self._names.get(table):
            self.tasks.setdefault(self._names[table], self._offsets[table])
            self._add_needs(self._names[table], at + 2)
        elif value == b"{":
            self._names[at + 2] = key

    def _read_methods(self, task: bytes, at: int) -> None:
        while self._words[at] == b":" and (at + 2 in self._ends or text_in(self._words[at + 2])):
            method = self._words[at + 1]
            if method == b"depends_on":
                self._add_needs(task, at + 2)
            elif method not in TASK_METHODS and len(self.misspelt) < FEW:
                self.misspelt.append(at + 1)
            at = self._ends.get(at + 2, at + 2) + 1

    def _add_needs(self, task: bytes, at: int) -> None:
        """Add the tasks that are named here, up to whatever is called among them."""
        places = range(at + (at in self._ends), self._ends.get(at, at) + 1)
        named = takewhile(lambda place: self._words[place] != b"(", places)
        given = (self._text(place) or self._variables.get(self._words[place], b"") for place in named)
        self.needs.setdefault(task, []).extend(given)

    def _text(self, at: int) -> bytes:
        """Return the text that is written here, if it is all of a value."""
        return b"" if b".." in (self._words[at - 1], self._words[at + 1]) else text_in(self._words[at])


def _bracket_ends(words: Sequence[bytes]) -> dict[int, int]:
    """Return where each bracket is closed that is."""
    ends, opened = dict[int, int](), list[int]()
    for at, word in enumerate(words):
        if word in BRACKETS:
            opened.append(at)
        elif word in _CLOSED and opened:
            ends[opened.pop()] = at
    return ends


def _find_circle(tasks: Mapping[bytes, int], needs: Mapping[bytes, Sequence[bytes]]) -> list[bytes]:
    """Return tasks that depend on each other, the first one at both ends; none where there is no circle."""
    try:
        TopologicalSorter({task: [each for each in needs.get(task, ()) if each in tasks] for task in tasks}).prepare()
    except CycleError as error:
        circle: list[bytes] = error.args[1][:0:-1]
        first = circle.index(min(circle, key=lambda task: tasks[task]))
        return [*circle[first:], *circle[: first + 1]]
    return []
