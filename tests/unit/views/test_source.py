"""Source around a line, and the places that errors name."""

from __future__ import annotations

import pytest

from spyweb.views.source import LONGEST_LINE, error_place, excerpt, frames_of, lines_of, unreadable_source, whole

SOURCE = b"\n".join(b"line %d" % number for number in range(1, 31))
TRACE = """stack traceback:
\tjobs/prices.lua:12: in function 'fetch'
\t[C]: in function 'pcall'
\t...ices.lua:3: in main chunk"""


@pytest.mark.parametrize(
    ("line", "first", "count", "marked"),
    [(12, 8, 9, 12), (1, 1, 5, 1), (30, 26, 5, 30), (None, 1, 9, None), (31, 1, 9, None), (0, 1, 9, None)],
)
def test_the_lines_around_one_are_shown(line: int | None, first: int, count: int, marked: int | None) -> None:
    shown = excerpt("jobs/prices.lua", SOURCE, line)
    assert (shown.first, len(shown.lines), shown.line, shown.total) == (first, count, marked, 30)
    assert shown.lines[0] == f"line {first}"


def test_a_file_ends_with_its_last_line_and_bytes_that_are_no_text_are_shown() -> None:
    assert lines_of(b"a\r\nb\n") == ["a", "b"]
    assert lines_of(b"") == []
    assert whole("x.lua", b"\xff\n" + b"x" * 999).lines == ["\ufffd", "x" * (LONGEST_LINE - 1) + "…"]
    assert excerpt("x.lua", b"", 1).lines == []
    assert unreadable_source("x.lua", "is gone").problem == "is gone"


def test_each_frame_of_a_traceback_has_its_place() -> None:
    frames = frames_of(TRACE, lambda name: name.replace("...ices", "jobs/prices"))
    assert [(frame.file, frame.line) for frame in frames] == [
        ("", None),
        ("jobs/prices.lua", 12),
        ("", None),
        ("jobs/prices.lua", 3),
    ]
    assert frames[1].text == "jobs/prices.lua:12: in function 'fetch'"


@pytest.mark.parametrize(
    ("reason", "traceback", "place"),
    [
        ("jobs/a.lua:7: boom", TRACE, ("jobs/a.lua", 7)),
        ("before_fetch: jobs/a/hooks.lua:7: boom", "", ("jobs/a/hooks.lua", 7)),
        ("over its timeout", TRACE, ("jobs/prices.lua", 12)),
        ("timed out after 20 s\nx.lua:3", "", None),
        ("no place: 12:30", "", None),
    ],
)
def test_an_error_names_the_place_of_its_message_else_of_its_traceback(
    reason: str, traceback: str, place: tuple[str, int] | None
) -> None:
    assert error_place(reason, traceback) == place
