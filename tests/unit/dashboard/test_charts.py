"""Charts as paths; laws over many inputs are in tests/property/test_charts.py."""

from __future__ import annotations

from spyweb.dashboard.charts import chart, heat, herd, span, strip
from spyweb.model import RunMark
from spyweb.store.model.runs import RunPoint

MINUTE = 60_000


def points(*took_ms: int) -> list[RunPoint]:
    return [RunPoint(i, i * MINUTE, ms, i, RunMark.SUCCESS) for i, ms in enumerate(took_ms)]


def test_a_strip_has_a_line_for_each_stretch_of_one_kind() -> None:
    drawn = strip("s" * 33 + "f" * 7)
    assert drawn.paths == (("s", "M0 19h196"), ("f", "M198 12h40"))
    assert drawn.label == "33 succeeded, 7 failed"


def test_a_short_strip_ends_at_the_right() -> None:
    assert strip("sf").paths == (("s", "M228 19h4"), ("f", "M234 12h4"))


def test_a_lost_run_is_broken_in_two() -> None:
    assert strip("l").paths == (("l", "M234 3h4M234 21h4"),)


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


def test_each_kind_of_run_has_its_own_path() -> None:
    drawn = chart([*points(1_000), RunPoint(2, MINUTE, 5_000, 0, RunMark.FAILED)], start_ms=0, end_ms=MINUTE)
    assert [letter for letter, _ in drawn.paths] == ["s", "f"]


def test_the_latest_start_is_the_tallest_bar() -> None:
    drawn = chart(points(100, 100, 100), start_ms=0, end_ms=2 * MINUTE)
    assert drawn.late == "M500 40v-20M1000 40v-40"
    assert drawn.late_label.endswith("at most 2\N{NO-BREAK SPACE}ms")


def test_a_limit_is_drawn_where_it_is_in_the_picture() -> None:
    assert chart(points(20_000), start_ms=0, end_ms=MINUTE, limit_ms=60_000).limit == 0
    assert chart(points(20), start_ms=0, end_ms=MINUTE, limit_ms=300_000).limit is None


def test_a_chart_of_nothing_has_a_grid() -> None:
    drawn = chart([], start_ms=0, end_ms=MINUTE)
    assert (drawn.paths, drawn.late, drawn.label) == ((), "", "Durations: no runs")
    assert len(drawn.lines) >= 2


def test_what_lies_outside_is_left_out() -> None:
    assert chart(points(100, 100), start_ms=MINUTE, end_ms=2 * MINUTE).paths == (("s", "M0 100h.01"),)


def test_a_heat_map_has_a_path_for_each_level() -> None:
    drawn = heat([0, 1, 2, 15, 16])
    assert drawn == (("h1", "M1 .5h0.9"), ("h2", "M2 .5h0.9"), ("h3", "M3 .5h0.9"), ("h4", "M4 .5h0.9"))


def test_the_peak_of_all_jobs_stands_apart() -> None:
    drawn = herd([1, 4, 0, 2])
    assert (drawn.peak_slot, drawn.most, drawn.peak) == (1, 4, "M1.5 64v-64")
    assert drawn.bars == "M0.5 64v-16M3.5 64v-32"
    assert herd([0, 0]).peak_slot is None


def test_another_bar_than_the_tallest_may_be_marked() -> None:
    drawn = herd([1, 4, 0, 2], 3)
    assert drawn.peak.startswith("M3.5 ")
    assert (drawn.bars.count("M"), drawn.peak_slot, drawn.most) == (2, 1, 4)
    assert herd([1, 4, 0, 2], 2) == herd([1, 4, 0, 2])


def test_a_short_operation_can_be_seen_and_a_late_one_stays_inside() -> None:
    assert span(0, 1, 100_000).width == 0.005
    assert span(100_000, 10, 100_000).x == 0.995
    assert span(10, 20, 100).x == 0.1
    assert span(5, 5, 0).width == 1
