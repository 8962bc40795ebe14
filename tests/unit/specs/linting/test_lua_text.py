from __future__ import annotations

import pytest

from spyweb.specs.linting.lua_text import TEXT, line_at, words_of


def words(source: str) -> list[bytes]:
    return [word for word, _ in words_of(source.encode())]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a.b == 1", [b"a", b".", b"b", b"==", b"1"]),
        ('f \'x y\' [[ long ]] "q\\""', [b"f", b"'x y'", TEXT, rb'"q\""']),
        ("a -- b\nc --[==[ d ]] ]==] e", [b"a", b"c", b"e"]),
        ("a [[ never closed", [b"a"]),
    ],
)
def test_words_and_signs_are_told_apart_from_strings_and_comments(source: str, expected: list[bytes]) -> None:
    assert words(source) == expected


def test_each_word_comes_with_its_offset_and_so_with_its_line() -> None:
    source = b"a\n\nb"
    assert [(word, line_at(source, offset)) for word, offset in words_of(source)] == [(b"a", 1), (b"b", 3)]


def test_a_quote_that_nobody_closes_ends_with_its_line() -> None:
    assert words("a 'b c\nd") == [b"a", b"'b c", b"d"]
