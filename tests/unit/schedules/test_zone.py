from __future__ import annotations

from datetime import UTC, datetime

from spyweb.schedules.zone import DAY_MS, spans

HOUR_MS = 3_600_000


def day(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000) // DAY_MS


def test_an_ordinary_day_is_one_span_that_goes_on_where_the_day_before_ended() -> None:
    (span,) = spans("Europe/Berlin", day("2026-01-10"))

    assert span.offset_ms == HOUR_MS
    assert span.local_end_ms - span.local_start_ms == DAY_MS
    assert span.shown_ms == span.local_start_ms


def test_a_jump_forward_leaves_a_gap_before_the_second_span() -> None:
    first, second = spans("Europe/Berlin", day("2026-03-29"))

    assert (first.offset_ms, second.offset_ms) == (HOUR_MS, 2 * HOUR_MS)
    assert second.local_start_ms - second.shown_ms == HOUR_MS


def test_a_clock_set_back_shows_times_again_in_the_second_span() -> None:
    _, second = spans("Australia/Lord_Howe", day("2026-04-04"))

    assert second.shown_ms - second.local_start_ms == HOUR_MS // 2


def test_a_change_at_the_very_start_of_a_day_is_seen_against_the_day_before() -> None:
    (span,) = spans("Atlantic/Azores", day("1983-09-25"))[:1]

    assert span.local_end_ms > span.local_start_ms
    for number in range(day("2011-12-28"), day("2012-01-02")):
        ends = [span.local_end_ms - span.offset_ms for span in spans("Pacific/Apia", number)]
        assert ends[-1] == (number + 1) * DAY_MS


def test_utc_never_changes() -> None:
    assert all(len(spans("UTC", number)) == 1 for number in range(20_000, 20_400))
