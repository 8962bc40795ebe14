"""Lua in colours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spyweb.web.pages.lua_source import LONGEST_LINE, SourceLine, colour

TEXT = 'local a = 1 -- one\n\nif a then\n  log("hello")\nend\n'


def plain(lines: list[SourceLine]) -> list[str]:
    return ["".join(text for _, text in line.pieces) for line in lines]


def test_words_numbers_texts_and_remarks_have_their_classes() -> None:
    classes = {text: name for name, text in colour(TEXT)[0].pieces}
    assert (classes["local"], classes["1"], classes["-- one"]) == ("kw", "nu", "c")
    assert "".join(text for name, text in colour('log("hello")')[0].pieces if name == "st") == '"hello"'


def test_the_line_that_is_meant_is_marked() -> None:
    lines = colour('if a then\n  log("hello")\nend', first=3, here=4)
    assert [line.number for line in lines] == [3, 4, 5]
    assert [line.number for line in lines if line.is_here] == [4]


def test_a_very_long_line_is_cut_off() -> None:
    assert len(plain(colour("x" * 5_000))[0]) == LONGEST_LINE


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=200))
def test_whatever_a_file_holds_its_lines_are_shown_as_they_are(text: str) -> None:
    lines = text.split("\n")
    expected = lines[:-1] if lines and not lines[-1] else lines
    assert plain(colour(text)) == expected
