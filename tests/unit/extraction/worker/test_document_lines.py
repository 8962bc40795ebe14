from __future__ import annotations

import pytest

from spyweb.extraction.worker.document import ExtractionProblem, find_lines


@pytest.mark.parametrize(
    ("pattern", "text", "lines"),
    [
        ("^Listen ", b"# Listen 80\nListen 80\nListen 81", [1, 2]),
        ("80$", b"Listen 80\r\nListen 81\r\n", [0]),
        (r"^\s*$", b"a\n\n  \nb", [1, 2]),
        ("ä", "b\nä".encode(), [1]),
        (".", b"\xff\n", [0]),
        ("x", b"", []),
        ("", b"", [0]),
    ],
)
def test_it_names_the_lines_that_match(pattern: str, text: bytes, lines: list[int]) -> None:
    assert find_lines(pattern, text) == lines


@pytest.mark.parametrize("pattern", ["(", "(" * 5_000 + ")" * 5_000, "a{99999999999}", "[z-a]"])
def test_what_is_no_regular_expression_is_told(pattern: str) -> None:
    with pytest.raises(ExtractionProblem, match="this is not a regular expression: "):
        find_lines(pattern, b"a")
