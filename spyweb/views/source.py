"""Lua source for people: the lines around one, and the places that a traceback names.  Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from spyweb.words import cut

AROUND = 4  # lines before and after the one that is shown
MOST_LINES = 20_000  # of a whole file
LONGEST_LINE = 500  # characters that are shown of one
MOST_FRAMES = 100

_PLACE = re.compile(r"^\s*(?P<file>[^\s:][^:\n]*\.(?:lua|sloth)):(?P<line>[0-9]{1,9})\b:?")
_IN_TEXT = re.compile(r"(?P<ending>\.(?:lua|sloth)):(?P<line>[0-9]{1,9})\b")
_BEFORE_NAME = re.compile(r"[\s:'\"(]")
LONGEST_MESSAGE = 2_000  # characters in which a place is looked for


class SourceView(Struct, frozen=True, kw_only=True):
    """A part of a file, or all of it."""

    file: str
    first: int  # the number of the first of these lines
    lines: Sequence[str]
    line: int | None  # the one that is meant
    total: int  # lines of the file
    problem: str = ""  # why it can't be shown
    may_differ: bool = False  # from the source that failed: the daemon was restarted since


class TraceFrame(Struct, frozen=True, kw_only=True):
    """A line of a traceback, and the place that it names."""

    text: str
    file: str = ""  # empty: it names none
    line: int | None = None


def excerpt(file: str, source: bytes, line: int | None) -> SourceView:
    """Return the lines around one; the first ones where none is meant, or it is not there."""
    lines = lines_of(source)
    meant = line if line is not None and 1 <= line <= len(lines) else None
    middle = meant or 1 + AROUND
    first = max(1, middle - AROUND)
    shown = [cut(each, LONGEST_LINE) for each in lines[first - 1 : middle + AROUND]]
    return SourceView(file=file, first=first, lines=shown, line=meant, total=len(lines))


def whole(file: str, source: bytes, line: int | None = None) -> SourceView:
    """Return all lines of a file, of a very long one the first."""
    lines = lines_of(source)
    return SourceView(
        file=file, first=1, lines=[cut(each, LONGEST_LINE) for each in lines[:MOST_LINES]], line=line, total=len(lines)
    )


def unreadable_source(file: str, problem: str) -> SourceView:
    return SourceView(file=file, first=1, lines=(), line=None, total=0, problem=problem)


def lines_of(source: bytes) -> list[str]:
    lines = source.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def frames_of(traceback: str, file_of: Callable[[str], str] = str) -> list[TraceFrame]:
    """Return the lines of a traceback, each with its place; `file_of` finds the file of a name that Lua has cut."""
    frames = []
    for text in traceback.splitlines()[:MOST_FRAMES]:
        if place := _PLACE.match(text):
            frames.append(TraceFrame(text=text.strip(), file=file_of(place["file"]), line=int(place["line"])))
        elif text.strip():
            frames.append(TraceFrame(text=text.strip()))
    return frames


def error_place(reason: str, traceback: str = "", file_of: Callable[[str], str] = str) -> tuple[str, int] | None:
    """Return the file and line that an error names: that of the message, else the innermost of its traceback."""
    message = reason[:LONGEST_MESSAGE].partition("\n")[0]
    if found := _IN_TEXT.search(message):
        name = _BEFORE_NAME.split(message[: found.end("ending")])[-1]
        return file_of(name), int(found["line"])
    return next(((frame.file, frame.line) for frame in frames_of(traceback, file_of) if frame.line is not None), None)
