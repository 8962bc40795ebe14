"""Counts, cut texts and durations in words."""

from __future__ import annotations

import pytest

from spyweb.words import counted, cut, first_line, round_duration


def test_a_number_has_its_noun() -> None:
    assert [counted(n, "job") for n in (0, 1, 1_000)] == ["0 jobs", "1 job", "1,000 jobs"]
    assert counted(2, "entry", "entries") == "2 entries"


def test_what_is_cut_says_so() -> None:
    assert (cut("four", 4), cut("fives", 4)) == ("four", "fiv…")
    assert first_line("\n one \ntwo") == "one"


@pytest.mark.parametrize(("ms", "words"), [(0, "0 ms"), (27 * 60_000, "27 m"), (90_000, "1 m 30 s")])
def test_a_duration_has_at_most_two_units(ms: int, words: str) -> None:
    assert round_duration(ms) == words
