"""Charts as paths; laws over many inputs are in tests/property/test_charts.py."""

from __future__ import annotations

from spyweb.model import RunMark
from spyweb.store.model.runs import RunPoint
from spyweb.web.pages.charts import chart, strip

MINUTE = 60_000


def points(*took_ms: int) -> list[RunPoint]:
    return [RunPoint(i, i * MINUTE, ms, i, RunMark.SUCCESS) for i, ms in enumerate(took_ms)]


def test_a_strip_shows_no_more_than_the_last_runs() -> None:
    assert strip("f" + "s" * 40).label == "40 succeeded"
    assert strip("").paths == ()
    assert strip("").label == "no runs"


def test_a_letter_of_a_later_version_is_quiet() -> None:
    assert strip("?").paths == (("k", "M234 22h4"),)


def test_durations_are_on_a_logarithmic_scale_between_round_ones() -> None:
    drawn = chart(points(1_000, 10_000), start_ms=0, end_ms=MINUTE)
    assert [words.replace("\N{NO-BREAK SPACE}", " ") for _, words in drawn.lines] == ["10 s", "1 s"]
    assert drawn.paths == (("s", "M0 100h.01M1000 0h.01"),)
    assert "2 succeeded" in drawn.label


def test_a_limit_is_drawn_where_it_is_in_the_picture() -> None:
    assert chart(points(20_000), start_ms=0, end_ms=MINUTE, limit_ms=60_000).limit == 0
    assert chart(points(20), start_ms=0, end_ms=MINUTE, limit_ms=300_000).limit is None


def test_a_chart_of_nothing_has_a_grid() -> None:
    drawn = chart([], start_ms=0, end_ms=MINUTE)
    assert (drawn.paths, drawn.late, drawn.label) == ((), "", "Durations: no runs")
    assert len(drawn.lines) >= 2


def test_what_lies_outside_is_left_out() -> None:
    assert chart(points(100, 100), start_ms=MINUTE, end_ms=2 * MINUTE).paths == (("s", "M0 100h.01"),)
