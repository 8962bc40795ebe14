"""Parse TOML into tables that remember the line of each key, so that every problem can name file, line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice

from spyweb.errors import Problem
from spyweb.limits import KEY_SEGMENTS, TEXT_KEPT, too_large

Path = tuple[str, ...]  # the keys from the top of the file down to a value

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=\s*(.*)")
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_AT_LINE = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)$")
_DEEPEST = 8  # parts of a path whose line is kept: no problem names a deeper one
_SHORT_LINE = 200  # characters of a line that are searched for the mistake
_BARE_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_UNQUOTED = re.compile(r"(?=[^A-Za-z@*]{0,200}[A-Za-z@*])[\w@*+/][\w .:/@*,+%-]*")
_TRUTHS = ("true", "false", "yes", "no", "on", "off")
_OUTSIDE_STRINGS = re.compile(
    r"""(?P<skip>\#[^\n]*+|\"{3}(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5})?|'{3}(?:[^']|'(?!''))*+(?:'{3,5})?)"""
    r"""|(?P<part>"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|[^\s.="'\#\[\]{},]++)"""
    r"""|(?P<dot>[ \t]*+\.[ \t]*+)"""
    r"""|(?P<other>\s++|.)""",
    re.DOTALL,
)


class _Text:
    """A parsed text with the lines of its keys; it lives as long as one of its tables."""

    def __init__(self, text: str = "", first_line: int = 1) -> None:
        self._text = text
        self._first_line = first_line  # of the file, on which the text begins

    @cached_property
    def lines(self) -> Mapping[Path, int]:
        """Return the first line of each key's path.  It is computed once, since a file may have many problems."""
        return dict(reversed(list(_found(self._text.splitlines(), self._first_line))))


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """A TOML table: its values, and the text that it came from."""

    values: Mapping[str, object] = field(default_factory=dict)
    file: str = ""
    path: Path = ()  # of this table in the file
    text: _Text = field(default_factory=_Text, repr=False, compare=False)

    def problem(self, reason: str, *keys: str) -> Problem:
        """Return a problem with the key at these names below this table."""
        path = (*self.path, *keys)
        return Problem(self.file, self.line_of(*keys), ".".join(path) or None, reason)

    def line_of(self, *keys: str) -> int | None:
        """Return the line of the key, or of the nearest table around it."""
        lines = self.text.lines
        path = (*self.path, *keys)
        for depth in range(len(path), 0, -1):
            for known in (path[:depth], (*path[: depth - 1], path[depth - 1].partition("[")[0])):
                if known in lines:  # the second is the whole of an array that stands in one line
                    return lines[known]
        return None

    def tables(self, key: str) -> list[TomlTable]:
        """Return the tables of an array, `[[key]]`, without elements that are not tables."""
        values = self.values.get(key)
        found = enumerate(values if isinstance(values, list) else [], 1)
        return [
            replace(self, values=inner, path=(*self.path, _nth(key, number)))
            for number, inner in found
            if isinstance(inner, Mapping)
        ]

    def with_values(self, values: Mapping[str, object]) -> TomlTable:
        return replace(self, values=values)

    def table(self, *keys: str) -> TomlTable:
        """Return the table at these keys; an empty one if there is none."""
        values: object = self.values
        for key in keys:
            values = values.get(key, {}) if isinstance(values, Mapping) else {}
        inner = values if isinstance(values, Mapping) else {}
        path = (*self.path, *keys)
        return replace(self, values=inner, path=path)


def parse_table(text: str, file: str, first_line: int = 1) -> TomlTable | Problem:
    """Return the whole text as a table, or the one problem that prevents that."""
    if problem := _long_key(text, file, first_line):
        return problem
    try:
        values = _loads(text) if len(text) <= TEXT_KEPT else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, reason = _where(str(error), text)
        reason = _wants_quotes(text.split("\n")[line - 1]) or reason
        return Problem(file, first_line + line - 1, None, f"not valid TOML: {reason}")
    except RecursionError:
        return Problem(file, first_line, None, "not valid TOML: nested too deep")
    except ValueError as error:  # a number with thousands of digits
        return Problem(file, first_line, None, f"not valid TOML: {error}")
    return TomlTable(values=values, file=file, text=_Text(text, first_line))


@lru_cache(maxsize=512)
def _loads(text: str) -> Mapping[str, object]:
    """Parse a short text; thousands of jobs share a few such texts, and the cache is much quicker than tomllib."""
    return tomllib.loads(text)


def _long_key(text: str, file: str, first_line: int) -> Problem | None:
    """Refuse a key with very many parts: tomllib takes time and memory that grow with the square of their number.

    A key is on one line, so counting dots shows that most texts are harmless.
    """
    if all(line.count(".") < KEY_SEGMENTS for line in text.split("\n")):
        return None
    line, dots = first_line, 0
    for token in _OUTSIDE_STRINGS.finditer(text):
        if token.lastgroup == "dot":
            dots += 1
        elif token.lastgroup != "part":
            if dots >= KEY_SEGMENTS:
                break
            dots = 0
        line += text.count("\n", *token.span())
    if dots < KEY_SEGMENTS:
        return None
    return Problem(file, line, None, too_large("a key", dots + 1, KEY_SEGMENTS, "parts"))


def _where(message: str, text: str) -> tuple[int, str]:
    match = _AT_LINE.search(message)
    if match is None:
        return 1, message
    line = int(match[1]) if match[1] else len(text.splitlines()) or 1
    reason = message[: match.start()].rstrip()
    return line, reason[:1].lower() + reason[1:]


def _wants_quotes(line: str) -> str:
    """Return a hint to quote a text if the line has a key and a bare word: `every = 5m`, `cron = @daily`."""
    key, _, rest = line[:_SHORT_LINE].partition("=")
    value = rest.split("#")[0].strip()
    if not _BARE_KEY.fullmatch(key.strip()) or not _UNQUOTED.fullmatch(value):
        return ""
    if value.lower() in _TRUTHS:
        return f"expected true or false, not {value}"
    return f'text is written in quotes: {key.strip()} = "{value}"'


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
            path = (*table, *_split(entry[1]))[:_DEEPEST]
            yield from ((path[:depth], number) for depth in range(len(path), len(table), -1))
            closing = _opened(entry[2])


def _numbered(names: Path, arrays: dict[Path, int], *, begins_another: bool) -> Path:
    """Return the path of a table; the second of an array of tables has the path `jobs[2]`."""
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
    """Return the parts of a key; those over the limit come from a multi-line string that only looks like keys."""
    return tuple(part[0].strip("\"'") for part in islice(re.finditer(_KEY, dotted), KEY_SEGMENTS))
