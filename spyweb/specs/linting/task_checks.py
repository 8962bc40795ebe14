"""Find faults of tasks that a file declares by `task("name")` and its methods: misspelt methods, and circles.

Guesses from the file's words, for warnings: nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from spyweb.specs.linting.lua_text import line_at, words_of
from spyweb.specs.linting.names import TASK_METHODS
from spyweb.specs.linting.undefined import CLOSE, FEW

LONGEST = 80  # letters of a word that is compared
SHOWN = 20  # tasks of a circle

Word = tuple[bytes, int]  # with its offset
_NONE: Word = (b"", 0)
_OPEN, _CLOSED = (b"(", b"{", b"["), (b")", b"}", b"]")


def find_task_faults(source: bytes) -> Iterator[tuple[int, str]]:
    """Yield each fault with its line."""
    if b"task" not in source:
        return
    read = TaskReader([_NONE, _NONE, *words_of(source, texts=True), *[_NONE] * 4])
    for (method, offset), close in read.misspelt:
        told = f'a task has no method {method.decode("utf-8", "replace")}; did you mean "{close}"?'
        yield line_at(source, offset), told
    if circle := _find_circle(read.tasks, read.needs):
        shown = " -> ".join(name.decode("utf-8", "replace") for name in circle[:SHOWN])
        yield line_at(source, read.tasks[circle[0]]), f"these tasks depend on each other: {shown}"


class TaskReader:
    """Reads what a file declares: `tasks` has where each begins, `needs` what it depends on, both by name."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.tasks: dict[bytes, int] = {}
        self.needs: dict[bytes, list[bytes]] = {}
        self.misspelt: list[tuple[Word, str]] = []  # methods, each with the one that may be meant
        self._words = words
        self._ends = _bracket_ends(words)
        self._variables: dict[bytes, bytes] = {}  # the name of the task that each holds
        for index in range(2, len(words) - 4):
            if words[index - 1][0] not in (b".", b":"):
                self._read(index)

    def _read(self, index: int) -> None:
        words, (word, offset) = self._words, self._words[index]
        if word == b"task" and words[index + 1][0] == b"(" and (name := _unquoted(words[index + 2][0])):
            self.tasks[name] = offset
            if words[index - 1][0] == b"=":
                self._variables[words[index - 2][0]] = name
            self._read_methods(name, self._ends.get(index + 1, len(words)) + 1)
        elif word in self._variables:
            self._read_methods(self._variables[word], index + 1)

    def _read_methods(self, task: bytes, place: int) -> None:
        words, ends = self._words, self._ends
        while place < len(words) - 4 and words[place][0] == b":" and place + 2 in ends:
            method, end = words[place + 1], ends[place + 2]
            if method[0] == b"depends_on":
                given = [_unquoted(each) or self._variables.get(each, b"") for each, _ in words[place + 3 : end]]
                self.needs.setdefault(task, []).extend(given)
            elif len(self.misspelt) < FEW and (close := _close_method(method[0])):
                self.misspelt.append((method, close))
            place = end + 1


def _bracket_ends(words: Sequence[Word]) -> dict[int, int]:
    """Return where each bracket is closed that is."""
    ends, opened = dict[int, int](), list[int]()
    for index, (word, _) in enumerate(words):
        if word in _OPEN:
            opened.append(index)
        elif word in _CLOSED and opened:
            ends[opened.pop()] = index
    return ends


def _close_method(method: bytes) -> str:
    """Return the method of a task that another word is nearly, or nothing."""
    name = method[:LONGEST].decode("latin-1")
    close = [] if name in TASK_METHODS else get_close_matches(name, TASK_METHODS, n=1, cutoff=CLOSE)
    return close[0] if close else ""


def _unquoted(word: bytes) -> bytes:
    return word[1:-1] if len(word) > 2 and word[:1] in (b'"', b"'") else b""


def _find_circle(tasks: Mapping[bytes, int], needs: Mapping[bytes, Sequence[bytes]]) -> list[bytes]:
    """Return tasks that depend on each other, the first one at both ends; none where there is no circle."""
    done: set[bytes] = set()
    for first in tasks:
        trail = {} if first in done else {first: iter(needs.get(first, ()))}
        while trail:
            name = next(reversed(trail))
            needed = next((each for each in trail[name] if each in tasks and each not in done), None)
            if needed is None:
                done.add(name)
                del trail[name]
            elif needed in trail:
                names = list(trail)
                return [*names[names.index(needed) :], needed]
            else:
                trail[needed] = iter(needs.get(needed, ()))
    return []
