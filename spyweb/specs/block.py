"""Read the settings block at the top of a Lua file, without running any Lua.

    -- /// job
    -- every = "30s"
    -- ///

Only a `#!` line, blank lines and comments may stand before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from spyweb.errors import Problem
from spyweb.settings.tables import TomlTable, parse_table

OPENING = "-- /// job"
LONGEST_BLOCK = 65_536  # bytes

_SHEBANG = re.compile(rb"#[^\n]*")
_COMMENT = re.compile(rb"\s*+(--[^\n]*)")
_LONG_COMMENT = re.compile(rb"--\[(=*)\[")
_MARKER = re.compile(rb"--[ \t]*+///[ \t]*+([^\r\n]*+)")  # of a comment without blanks at its end
_MARKER_LINE = re.compile(rb"^[ \t]*--[ \t]*///[ \t]*job[ \t]*\r?$", re.MULTILINE)
_NEARLY_A_MARK = re.compile(rb"^[ \t]*+-{2,}+[ \t]*+/{2,}+[ \t]*+job[ \t]*+\r?$", re.MULTILINE | re.IGNORECASE)
_FENCE = re.compile(rb"-{2,}+[ \t]*+[=-]*+[ \t]*+(job)?", re.IGNORECASE)  # `--- job`, `-- ===`, `---`
_SETTING = re.compile(rb"\s*+(?:--[ \t]*+)?(\w++)[ \t]*+=(?!=)")
_SETTINGS = {b"every", b"cron", b"at", b"after", b"timeout", b"retries"}  # after `---`, which begins many a comment


class Block(Struct, frozen=True, kw_only=True):
    """The settings block of a file; its table is empty where there is none."""

    table: TomlTable
    start: int = 0  # offsets in the file, of what is between the markers
    end: int = 0


def read_block(source: bytes, file: str) -> Block | Problem:
    """Return the settings block of a file, or the problem with it as a whole."""
    for start, end in _leading_comments(source):
        marker = _MARKER.fullmatch(source[start:end].rstrip())
        if marker is None:
            continue
        line = source.count(b"\n", 0, start) + 1
        if marker[1] != b"job":
            if nearly := find_nearly_a_mark(source[:start]):
                return Problem(file, nearly, None, f'this begins no block of settings; expected "{OPENING}"')
            kind = marker[1].decode("utf-8", "replace")[:40]
            return Problem(file, line, None, f'"-- /// {kind}" begins no block; expected "{OPENING}"')
        return _read_content(source, end, file, line)
    return Block(table=TomlTable(file=file))


def find_misplaced_block(source: bytes, start: int = 0) -> int | None:
    """Return the line of a later block, which has no effect since code, or another block, stands before it."""
    if source.find(b"///", start) < 0:  # much faster than the search by line
        return None
    return _line_of(_MARKER_LINE.search(source, start), source)


def find_nearly_a_mark(source: bytes) -> int | None:
    """Return the line of a misspelt opening marker: `--- /// job`, `-- // job`, a fence such as `--- job` or `---`."""
    if b"//" in source:
        for found in _NEARLY_A_MARK.finditer(source):
            if not _MARKER_LINE.match(found[0]):
                return _line_of(found, source)
    for start, end in _leading_comments(source):
        fence = _FENCE.fullmatch(source[start:end].rstrip())
        setting = fence and len(fence[0]) > len("--") and _SETTING.match(source, end)
        if fence and setting and (fence[1] or setting[1] in _SETTINGS):
            return source.count(b"\n", 0, start) + 1
    return None


def _line_of(found: re.Match[bytes] | None, source: bytes) -> int | None:
    return source.count(b"\n", 0, found.start()) + 1 if found else None


def _leading_comments(source: bytes) -> Iterator[tuple[int, int]]:
    """Yield the span of each one-line comment before the first code."""
    shebang = _SHEBANG.match(source)
    position = shebang.end() if shebang else 0
    while comment := _COMMENT.match(source, position):
        long = _LONG_COMMENT.match(source, comment.start(1))
        if long is None:
            yield comment.span(1)
            position = comment.end()
            continue
        closing = b"]" + long[1] + b"]"
        found = source.find(closing, long.end())
        if found < 0:
            return
        position = found + len(closing)


def _read_content(source: bytes, start: int, file: str, opening_line: int) -> Block | Problem:
    unterminated = Problem(file, opening_line, None, f'the block that "{OPENING}" begins is not ended by "-- ///"')
    lines: list[str] = []
    position = start + 1
    while position < min(len(source), start + LONGEST_BLOCK):
        line_end = source.find(b"\n", position)
        line_end = len(source) if line_end < 0 else line_end
        raw = source[position:line_end].strip()
        if marker := _MARKER.fullmatch(raw):
            if marker[1]:
                return unterminated
            table = parse_table("\n".join(lines), file, opening_line + 1)
            return table if isinstance(table, Problem) else Block(table=table, start=start, end=line_end)
        if not raw.startswith(b"--"):
            return unterminated
        try:
            lines.append(raw.decode("utf-8")[2:].removeprefix(" "))
        except UnicodeDecodeError:
            return Problem(file, opening_line + len(lines) + 1, None, "the settings block is not UTF-8 text")
        position = line_end + 1
    return unterminated


def code_of_file(source: bytes, block: Block) -> bytes:
    """Return the source with its settings blanked out, line by line: equal where only the settings differ."""
    settings = source[block.start : block.end]
    return source[: block.start] + b"\n" * settings.count(b"\n") + source[block.end :]
