"""TOML text as a table that remembers where each key stands, so that every problem can name file, line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from spyweb.errors import Problem

Path = tuple[str, ...]  # the keys from the top of the file down to a value

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=\s*(.*)")
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_AT_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One TOML table: its values, and the text that it came from."""

    values: Mapping[str, object] = field(default_factory=dict)
    file: str = ""
    path: Path = ()  # of this table in the file
    text: str = field(default="", repr=False, compare=False)
    first_line: int = field(default=1, compare=False)  # the file's line on which the text begins

    def problem(self, reason: str, *keys: str) -> Problem:
        """A problem with the key that these names lead to from here."""
        path = (*self.path, *keys)
        return Problem(self.file, self.line_of(*keys), ".".join(path) or None, reason)

    def line_of(self, *keys: str) -> int | None:
        """The line where the key stands, or the nearest table around it."""
        lines = _lines(self.text, self.first_line)
        path = (*self.path, *keys)
        return next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), None)

    def tables(self, key: str) -> list[Table]:
        """The tables of an array, `[[key]]`; what is none of them is left out."""
        values = self.values.get(key)
        found = enumerate(values if isinstance(values, list) else [], 1)
        return [
            replace(self, values=inner, path=(*self.path, _nth(key, number)))
            for number, inner in found
            if isinstance(inner, Mapping)
        ]

    def with_values(self, values: Mapping[str, object]) -> Table:
        return replace(self, values=values)

    def table(self, *keys: str) -> Table:
        """The table below; an empty one when there is none."""
        values: object = self.values
        for key in keys:
            values = values.get(key, {}) if isinstance(values, Mapping) else {}
        inner = values if isinstance(values, Mapping) else {}
        path = (*self.path, *keys)
        return replace(self, values=inner, path=path)


def parse_table(text: str, file: str, first_line: int = 1) -> Table | Problem:
    """The whole text as a table, or the one problem that keeps it from being read."""
    try:
        values = _loads(text)
    except tomllib.TOMLDecodeError as error:
        line, reason = _where(str(error), text)
        return Problem(file, first_line + line - 1, None, f"not valid TOML: {reason}")
    except RecursionError:
        return Problem(file, first_line, None, "not valid TOML: nested too deep")
    except ValueError as error:  # a number of thousands of digits
        return Problem(file, first_line, None, f"not valid TOML: {error}")
    return Table(values=values, file=file, text=text, first_line=first_line)


@lru_cache(maxsize=512)
def _loads(text: str) -> Mapping[str, object]:
    """Thousands of jobs share a few short blocks: tomllib takes 10 µs a line, the cache 0.1 µs."""
    return tomllib.loads(text)


def _where(message: str, text: str) -> tuple[int, str]:
    match = _AT_LINE.search(message)
    if match is None:
        return 1, message
    line = int(match[1]) if match[1] else len(text.splitlines()) or 1
    return line, message[: match.start()][:1].lower() + message[: match.start()][1:]


@lru_cache(maxsize=16)
def _lines(text: str, first_line: int) -> Mapping[Path, int]:
    """Each key's path and its first line.  Kept, because a file of a thousand jobs may have a thousand problems."""
    return dict(reversed(list(_found(text.splitlines(), first_line))))


def _found(lines: Sequence[str], first_line: int) -> Iterator[tuple[Path, int]]:
    table: Path = ()
    closing = ""  # the quotes that end the multi-line string we are in
    arrays: dict[Path, int] = {}  # of tables: how many of each have begun
    for number, line in enumerate(lines, first_line):
        if closing:
            closing = "" if closing in line else closing
        elif header := _HEADER.match(line):
            table = _numbered(_split(header[2]), arrays, begins_another=header[1] == "[[")
            yield table, number
        elif entry := _ENTRY.match(line):
            path = (*table, *_split(entry[1]))
            yield from ((path[:depth], number) for depth in range(len(path), len(table), -1))
            closing = _opened(entry[2])


def _numbered(names: Path, arrays: dict[Path, int], *, begins_another: bool) -> Path:
    """The path of a table, where that of the second of an array of tables is `jobs[2]`."""
    path: Path = ()
    for depth, name in enumerate(names, 1):
        whole = (*path, name)
        if begins_another and depth == len(names):
            arrays[whole] = arrays.get(whole, 0) + 1
        path = (*path, _nth(name, arrays[whole])) if whole in arrays else whole
    return path


def _nth(name: str, number: int) -> str:
    return f"{name}[{number}]"


def _opened(value: str) -> str:
    return next((quotes for quotes in ('"""', "'''") if value.count(quotes) == 1), "")


def _split(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_KEY, dotted))
