"""What pages show: numbers and moments in words, charts as paths, Lua in colours."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import RunMark
from spyweb.store.model.runs import RunPoint
from spyweb.web.pages.charts import chart, strip
from spyweb.web.pages.lua_source import LONGEST_LINE, SourceLine, colour
from spyweb.web.pages.words import (
    ABSENT,
    Moments,
    iso_moment,
    show_count,
    show_counted,
    show_duration,
    show_share,
    show_size,
)

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
UTC, BERLIN = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin")


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, ABSENT),
        (0, "0 ms"),
        (340, "340 ms"),
        (999.6, "1 s"),
        (1_000, "1 s"),
        (1_240, "1.2 s"),
        (20_400, "20.4 s"),
        (59_960, "1 m"),
        (60_000, "1 m"),
        (113_000, "1 m 53 s"),
        (3_599_600, "1 h"),
        (44_820_000, "12 h 27 m"),
        (DAY_MS - 400, "1 d"),
        (6 * DAY_MS + 14 * HOUR_MS, "6 d 14 h"),
        (4_000 * DAY_MS, "4,000 d"),
        (-5_000, "\N{MINUS SIGN}5 s"),
    ],
)
def test_a_duration_has_at_most_two_units(ms: float | None, shown: str) -> None:
    assert plain(show_duration(ms)) == shown


def test_a_number_stays_with_its_unit() -> None:
    assert show_duration(113_000) == "1\N{NO-BREAK SPACE}m 53\N{NO-BREAK SPACE}s"
    assert show_size(3 << 20) == "3\N{NO-BREAK SPACE}MB"
    assert show_counted(2, "job") == "2\N{NO-BREAK SPACE}jobs"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, ABSENT),
        (0, "0 B"),
        (999, "999 B"),
        (1_023, "1 KB"),
        (74 << 20, "74 MB"),
        (1_230 << 20, "1.2 GB"),
        (1 << 62, "4096 PB"),
    ],
)
def test_a_size_is_in_the_largest_unit_that_fits(size: int | None, shown: str) -> None:
    assert plain(show_size(size)) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (None, ABSENT),
        (1, "100 %"),
        (0.976, "97.6 %"),
        (0.99999, "99.9 %"),
        (0.00001, "0.1 %"),
        (0, "0 %"),
        (0.5, "50 %"),
    ],
)
def test_a_share_is_whole_only_when_nothing_is_missing(share: float | None, shown: str) -> None:
    assert plain(show_share(share)) == shown


def test_counts_have_separators_and_nothing_is_a_word() -> None:
    assert (show_count(1_284), show_count(None)) == ("1,284", ABSENT)
    assert [plain(show_counted(n, "entry", "entries")) for n in (0, 1, 1_000)] == [
        "no entries",
        "1 entry",
        "1,000 entries",
    ]


@pytest.mark.parametrize(
    ("away_ms", "shown"),
    [
        (-1, "yesterday 23:59"),
        (0, "00:00:00"),
        (14 * HOUR_MS + 131_000, "14:02:11"),
        (DAY_MS, "tomorrow 00:00"),
        (2 * DAY_MS, "3 Jan 00:00"),
        (-10 * DAY_MS, "22 Dec 2025"),
        (1 << 60, "23 Dec 9998"),
    ],
)
def test_a_moment_of_today_is_a_time_and_of_another_day_a_date(away_ms: int, shown: str) -> None:
    assert plain(Moments(NOW_MS, UTC).show(NOW_MS + away_ms)) == shown


def test_a_moment_is_told_in_the_daemons_zone() -> None:
    moments = Moments(NOW_MS, BERLIN)
    assert moments.show(NOW_MS) == "01:00:00"
    assert (moments.show_clock(NOW_MS), plain(moments.show_day(NOW_MS))) == ("01:00", "1 Jan")
    assert moments.show_exactly(NOW_MS + 12) == "01:00:00.012"


def test_a_countdown_ends_with_now() -> None:
    moments = Moments(NOW_MS, UTC)
    assert [plain(moments.until(NOW_MS + ms)) for ms in (113_900, 1_000, 999, -5)] == ["1 m 53 s", "1 s", "now", "now"]
    assert [plain(moments.since(NOW_MS - ms)) for ms in (131_000, 0, -9)] == ["2 m 11 s", "0 ms", "0 ms"]


def test_a_machine_reads_the_moment_in_utc() -> None:
    assert iso_moment(NOW_MS + 12) == "2026-01-01T00:00:00.012Z"


MINUTE = 60_000


def points(*took_ms: int) -> list[RunPoint]:
    return [RunPoint(i, i * MINUTE, ms, i, RunMark.SUCCESS) for i, ms in enumerate(took_ms)]


def test_a_strip_shows_no_more_than_the_last_runs() -> None:
    assert strip("f" + "s" * 40).label == "40 succeeded"
    assert strip("").paths == ()
    assert strip("").label == "no runs"


def test_durations_are_on_a_logarithmic_scale_between_round_ones() -> None:
    drawn = chart(points(1_000, 10_000), 0, MINUTE, UTC)
    assert [words.replace("\N{NO-BREAK SPACE}", " ") for _, words in drawn.lines] == ["10 s", "1 s"]
    assert drawn.paths == (("s", "M0 100h.01M1000 0h.01"),)
    assert "2 succeeded" in drawn.label


def test_a_chart_of_nothing_has_a_grid() -> None:
    drawn = chart([], 0, MINUTE, UTC)
    assert (drawn.paths, drawn.late, drawn.label) == ((), "", "Durations: no runs")
    assert len(drawn.lines) >= 2


TEXT = 'local a = 1 -- one\n\nif a then\n  log("hello")\nend\n'


def texts_of(lines: list[SourceLine]) -> list[str]:
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
    assert len(texts_of(colour("x" * 5_000))[0]) == LONGEST_LINE


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=200))
def test_whatever_a_file_holds_its_lines_are_shown_as_they_are(text: str) -> None:
    lines = text.split("\n")
    expected = lines[:-1] if lines and not lines[-1] else lines
    assert texts_of(colour(text)) == expected
