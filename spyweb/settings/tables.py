"""Parse TOML into tables that remember the line of each key, so that every problem can name file, line and key."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice

from spyweb.errors import Problem
from spyweb.files import open_regular
from spyweb.limits import KEY_SEGMENTS, PROJECT_FILE, TEXT_KEPT, too_large
from spyweb.settings.units import format_size

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
_STRING = re.compile(
    r"""\#[^\n]*+|"{3}(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5})?|'{3}(?:[^']|'(?!''))*+(?:'{3,5})?"""
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?""",
    re.DOTALL,
)  # also a comment
_LONG_KEY = re.compile(rf"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){{{KEY_SEGMENTS},}}+")
_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class _Text:
    """A parsed text with the lines of its keys; it lives as long as one of its tables."""

    def __init__(self, text: str = "", first_line: int = 1) -> None:
        self._text = text
        self._first_line = first_line  # of the file, on which the text begins

    @cached_property
    def lines(self) -> Mapping[Path, int]:
        """Return the first line of each key's path.  It is computed once, since a file may have many problems."""
        return dict(reversed(list(_found(self._text.split("\n"), self._first_line))))


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """A TOML table: its values, and the text that it came from."""

    values: Mapping[str, object] = field(default_factory=dict, repr=False)  # there may be secrets among them
    file: str = ""
    path: Path = ()  # of this table in the file
    text: _Text = field(default_factory=_Text, repr=False, compare=False)
    forgiving: bool = field(default=False, compare=False)  # an unknown key is a warning here, not an error

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

    def tables(self, key: str, problems: list[Problem]) -> list[TomlTable]:
        """Return the tables of an array, `[[key]]`; an item that is not a table is a problem."""
        values = self.values.get(key, [])
        found = [
            self.inside(inner, f"{key}[{number}]")
            for number, inner in enumerate(values if isinstance(values, list) else [], 1)
            if isinstance(inner, Mapping)
        ]
        if not isinstance(values, list) or len(found) < len(values):
            problems.append(self.problem(f"expected tables, each headed [[{key}]]", key))
        return found

    def with_values(self, values: Mapping[str, object], *, forgiving: bool = False) -> TomlTable:
        return replace(self, values=values, forgiving=forgiving)

    def table(self, *keys: str) -> TomlTable:
        """Return the table at these keys; an empty one if there is none."""
        values: object = self.values
        for key in keys:
            values = values.get(key, {}) if isinstance(values, Mapping) else {}
        return self.inside(values if isinstance(values, Mapping) else {}, *keys)

    def inside(self, values: Mapping[str, object], *keys: str) -> TomlTable:
        """Return a table with these values at these keys."""
        return replace(self, values=values, path=(*self.path, *keys))


def unreadable(file: str, error: OSError) -> Problem:
    return Problem(file, None, None, f"can't be read: {error.strerror or error}")


def read_text(root: str | os.PathLike[str], file: str, *, may_lack: bool = False) -> bytes | Problem:
    """Return the text of a project's file, without byte order mark; None for an optional file that is missing."""
    try:
        with open_regular(os.path.join(root, file)) as opened:
            content = opened.read(min(os.fstat(opened.fileno()).st_size, PROJECT_FILE) + 1)
    except OSError as error:
        return b"" if may_lack and isinstance(error, FileNotFoundError) else unreadable(file, error)
    if len(content) > PROJECT_FILE:
        return Problem(file, None, None, f"is larger than {format_size(PROJECT_FILE)}")
    if content.startswith(_UTF16_BOMS):
        return Problem(file, 1, None, "is UTF-16 text; save it as UTF-8")
    return content.removeprefix(_BOM)


def read_toml(root: str | os.PathLike[str], file: str, *, may_lack: bool = False) -> TomlTable | Problem:
    source = read_text(root, file, may_lack=may_lack)
    return source if isinstance(source, Problem) else decode_table(source, file)


def decode_table(source: bytes, file: str) -> TomlTable | Problem:
    """Return a whole file as a table, or the one problem that prevents that."""
    try:
        return parse_table(source.decode("utf-8").replace("\r\n", "\n"), file)
    except UnicodeDecodeError as error:
        return Problem(file, source.count(b"\n", 0, error.start) + 1, None, "is not UTF-8 text")


def parse_table(text: str, file: str, first_line: int = 1) -> TomlTable | Problem:
    if problem := _long_key(text, file, first_line):
        return problem
    try:
        values = _loads(text) if len(text) <= TEXT_KEPT else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, reason = _mistake(str(error), text)
        return Problem(file, first_line + line - 1, None, f"not valid TOML: {reason}")
    except (RecursionError, ValueError) as error:  # the latter for thousands of digits
        reason = "nested too deep" if isinstance(error, RecursionError) else "a number is too long"
        return Problem(file, first_line, None, f"not valid TOML: {reason}")
    return TomlTable(values=values, file=file, text=_Text(text, first_line))


@lru_cache(maxsize=512)
def _loads(text: str) -> Mapping[str, object]:
    """Parse a short text; thousands of jobs share a few such texts, and the cache is much quicker than tomllib."""
    return tomllib.loads(text)


def _long_key(text: str, file: str, first_line: int) -> Problem | None:
    """Refuse a key of very many parts: tomllib takes time and memory that grow with the square of their number."""
    if all(line.count(".") < KEY_SEGMENTS for line in text.split("\n")):
        return None
    bare = _STRING.sub(lambda string: "x" + "\n" * string[0].count("\n"), text)
    found = _LONG_KEY.search(bare)
    if found is None:
        return None
    reason = too_large("a key", found[0].count(".") + 1, KEY_SEGMENTS, "parts")
    return Problem(file, first_line + bare.count("\n", 0, found.start()), None, reason)


def _mistake(message: str, text: str) -> tuple[int, str]:
    """Return the line of a mistake and its reason: often a text without quotes, `every = 5m`, `cron = @daily`."""
    match = _AT_LINE.search(message)
    lines = text.removesuffix("\n").split("\n")
    line = int(match[1]) if match and match[1] else len(lines) if match else 1
    key, _, rest = lines[line - 1][:_SHORT_LINE].partition("=")
    value = rest.split("#")[0].strip()
    if _BARE_KEY.fullmatch(key.strip()) and _UNQUOTED.fullmatch(value):
        if value.lower() in _TRUTHS:
            return line, f"expected true or false, not {value}"
        return line, f'text is written in quotes: {key.strip()} = "{value}"'
    reason = message[: match.start()].rstrip() if match else message
    return line, reason[:1].lower() + reason[1:]


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
            closing = next((quotes for quotes in ('"""', "'''") if entry[2].count(quotes) == 1), "")


def _numbered(names: Path, arrays: dict[Path, int], *, begins_another: bool) -> Path:
    """Return the path of a table; the second of an array of tables has the path `jobs[2]`."""
    path: Path = ()
    for depth, name in enumerate(names, 1):
        whole = (*path, name)
        if begins_another and depth == len(names):
            arrays[whole] = arrays.get(whole, 0) + 1
        path = (*path, f"{name}[{arrays[whole]}]") if whole in arrays else whole
    return path


def _split(dotted: str) -> Path:
    """Return the parts of a key; those over the limit come from a multi-line string that only looks like keys."""
    return tuple(part[0].strip("\"'") for part in islice(re.finditer(_KEY, dotted), KEY_SEGMENTS))
