"""Incidents in words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.incidents.policy import Level
from spyweb.model import JobId
from spyweb.store.model.incidents import OpenIncident
from spyweb.subjects.incidents.views import IncidentChannel, IncidentNote, SignView
from spyweb.subjects.incidents.words import (
    history_of,
    left_alone,
    open_line,
    reason_of,
    show_incident,
    sign_words,
    subject_name,
    tellings_of,
)
from tests.fakes.incidents import KNOWN

VIEW = replace(
    KNOWN,
    id=42,
    subject="job:backup",
    job_id=JobId("backup"),
    level="critical",
    text="no space",
    since_ms=1_000,
    opened_ms=5_000,
    signs={"failing": SignView(since_ms=1_000, text="still no space")},
    failures=7,
    notes=[IncidentNote(at_ms=6_000, text="silenced by anna")],
)
OVER = replace(VIEW, closed_ms=61_000, signs={}, failures=0)


def channel(name: str, told: str = "", from_ms: int = 5_000, held: str = "") -> IncidentChannel:
    return IncidentChannel(name=name, told=told, from_ms=from_ms, held=held)


def brief(number: int, subject: str, since_ms: int = 0, acked_ms: int | None = None) -> OpenIncident:
    return OpenIncident(
        id=number,
        subject=subject,
        level=Level.WARNING,
        reason="failing",
        since_ms=since_ms,
        acked_ms=acked_ms,
        acked_by="",
    )


@pytest.mark.parametrize(
    ("subject", "name"),
    [("job:backup", "Nightly"), ("channel:phone", "Channel phone"), ("daemon:disk", "spyweb's disk"), ("else", "else")],
)
def test_a_subject_has_the_name_that_people_use(subject: str, name: str) -> None:
    assert subject_name(subject, "Nightly") == name


def test_what_is_wrong_is_said_with_how_often() -> None:
    shown = show_incident(VIEW, "Nightly")
    assert (shown.name, shown.mark, shown.tone, shown.lasted_ms) == ("Nightly", "bad", "bad", None)
    assert shown.wrong == "failing, 7\N{NO-BREAK SPACE}runs in a row"
    both = {**VIEW.signs, "drift": SignView(since_ms=2_000, text="")}
    assert show_incident(replace(VIEW, signs=both, failures=1), "").wrong == "failing, has drifted"
    assert (sign_words("late"), sign_words("unheard-of")) == ("late", "unheard-of")


def test_the_newest_reason_is_told_and_several_one_by_one() -> None:
    assert reason_of(VIEW) == "still no space"
    assert reason_of(OVER) == "no space"
    assert reason_of(replace(VIEW, signs={**VIEW.signs, "drift": SignView(since_ms=1, text="x")})) == ""


def test_each_channel_says_what_it_knows_and_what_holds_it() -> None:
    channels = [
        channel("ops", told="open"),
        channel("phone", held="quiet until 07:00"),
        channel("mail"),
        channel("boss", from_ms=1_805_000),
    ]
    view = replace(VIEW, channels=channels, told={"ops": "open", "gone": "spared"})
    found = [(each.name, each.words, each.from_ms) for each in tellings_of(view, now_ms=10_000)]
    assert found == [
        ("ops", "told that it began", None),
        ("phone", "not told yet:", None),
        ("mail", "is being told", None),
        ("boss", "told unless acknowledged by then", 1_805_000),
        ("gone", "was told nothing of it", None),
    ]
    assert [each.held for each in tellings_of(view, now_ms=10_000)] == ["", "quiet", "", "", ""]
    held = replace(VIEW, channels=[channel("ops", told="open", held="silenced until 03:00")])
    assert [(each.words, each.held) for each in tellings_of(held, now_ms=10_000)] == [
        ("told that it began; now", "silenced")
    ]
    acked = tellings_of(replace(VIEW, channels=[channel("phone")], acked_ms=7), now_ms=10_000)
    assert [each.words for each in acked] == ["not told: acknowledged"]
    over = tellings_of(replace(OVER, channels=[channel("phone"), channel("ops", told="closed")]), now_ms=10_000)
    assert [each.words for each in over] == ["not told yet that it was", "told that it is over"]


def test_the_open_ones_are_one_line_with_the_oldest_first() -> None:
    assert open_line([], str) is None
    found = open_line(
        [brief(n, f"job:j{n}", since_ms=100 - n, acked_ms=1 if n == 2 else None) for n in range(5)], str.upper
    )
    assert found is not None
    assert (found.count, found.oldest.id, found.unnamed, found.left_alone) == (5, 4, 2, 4)
    assert [name for _, name in found.named] == ["JOB:J4", "JOB:J3", "JOB:J2"]
    assert left_alone([brief(1, "job:x", acked_ms=1)]) == 0


def test_the_history_has_a_beginning_and_an_end() -> None:
    assert [(note.at_ms, note.text) for note in history_of(OVER)] == [
        (1_000, "the first failure"),
        (5_000, "became an incident: failing"),
        (6_000, "silenced by anna"),
        (61_000, "over"),
    ]
    assert [note.at_ms for note in history_of(replace(VIEW, since_ms=5_000))] == [5_000, 6_000]
