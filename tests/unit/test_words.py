"""Counts, cut texts, durations and moments in words."""

from __future__ import annotations

import pytest

from spyweb.words import counted, cut, describe_moment, first_line, round_duration


def test_a_number_has_its_noun() -> None:
    assert [counted(n, "job") for n in (0, 1, 1_000)] == ["0 jobs", "1 job", "1,000 jobs"]
    assert counted(2, "entry", "entries") == "2 entries"


def test_what_is_cut_says_so() -> None:
    assert (cut("four", 4), cut("fives", 4)) == ("four", "fiv…")
    assert first_line("\n one \ntwo") == "one"


@pytest.mark.parametrize(("ms", "words"), [(0, "0 ms"), (27 * 60_000, "27 m"), (90_000, "1 m 30 s")])
def test_a_duration_has_at_most_two_units(ms: int, words: str) -> None:
    assert round_duration(ms) == words


@pytest.mark.parametrize(
    ("ms", "zone", "text"),
    [
        (1_774_746_000_000, "Europe/Berlin", "Sun 2026-03-29 03:00:00 CEST"),
        (1_774_745_999_000, "Europe/Berlin", "Sun 2026-03-29 01:59:59 CET"),
        (1_767_225_600_007, "UTC", "Thu 2026-01-01 00:00:00.007 UTC"),
        (-1, "UTC", "Wed 1969-12-31 23:59:59.999 UTC"),
        (1 << 53, "UTC", "9007199254740992 ms since 1970"),
        (253_402_300_799_000, "Europe/Berlin", "253402300799000 ms since 1970"),
        (-62_135_596_800_000, "America/New_York", "-62135596800000 ms since 1970"),
    ],
)
def test_a_moment_says_its_zone(ms: int, zone: str, text: str) -> None:
    assert describe_moment(ms, zone) == text
