"""What people read about incidents."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spyweb.alerts.texts import AlertFacts, AlertItem, body_of, mood_of, title_of
from spyweb.incidents.policy import Level
from spyweb.incidents.telling import MessageKind
from spyweb.model import RunId
from tests.fakes.clock import START_MS

MINUTE, HOUR = 60_000, 3_600_000
ITEM = AlertItem(
    incident=42,
    kind=MessageKind.OPENED,
    subject="job:backup",
    level=Level.WARNING,
    reason="failing",
    text="no route to host",
    run=RunId(991),
    since_ms=START_MS,
    opened_ms=START_MS + 2 * MINUTE,
    closed_ms=None,
    failures=3,
    flapping=False,
)


def facts(*items: AlertItem, count: int | None = None) -> AlertFacts:
    return AlertFacts(
        channel="phone", at_ms=START_MS + 27 * MINUTE, items=items, count=len(items) if count is None else count
    )


def item(**changes: Any) -> AlertItem:
    return replace(ITEM, **changes)


MESSAGE = item(
    incident=None, kind=MessageKind.MESSAGE, reason="", title="the backup has 12 GB", text="of 40", level=Level.INFO
)
CLOSED = item(kind=MessageKind.CLOSED, closed_ms=START_MS + 27 * MINUTE)


@pytest.mark.parametrize(
    ("told", "title"),
    [
        (ITEM, "#42 backup is down: 3 failures"),
        (item(failures=1), "#42 backup is down"),
        (item(reason="late"), "#42 backup is late"),
        (item(reason="broken"), "#42 backup can't be loaded"),
        (item(subject="channel:phone", reason="down"), "#42 the channel phone takes no messages"),
        (item(subject="daemon:disk", reason="stuck", failures=0), "#42 spyweb's disk does not answer"),
        (item(subject="daemon:scheduler", reason="behind", failures=0), "#42 spyweb's scheduler is behind"),
        (item(subject="daemon:store", reason="refusing", failures=0), "#42 spyweb's store takes nothing"),
        (item(subject="daemon:workers", reason="missing", failures=0), "#42 spyweb's worker pool has no worker"),
        (item(reason="broken", failures=0), "#42 backup can't be loaded"),
        (item(reason="held_back", failures=3), "#42 backup runs no more"),
        (item(reason="quarantined", failures=1), "#42 backup is in quarantine"),
        (item(kind=MessageKind.REMINDER, failures=7), "#42 backup is down: 7 failures, for 27 m now"),
        (CLOSED, "#42 backup recovered after 27 m"),
        (MESSAGE, "the backup has 12 GB"),
        (replace(CLOSED, kind=MessageKind.WAS), "#42 backup had a problem for 27 m, and recovered"),
        (replace(CLOSED, gone=True), "#42 backup was removed or disabled"),
        (
            replace(CLOSED, kind=MessageKind.WAS, gone=True),
            "#42 backup had a problem for 27 m, and was removed or disabled",
        ),
    ],
)
def test_the_title_says_what(told: AlertItem, title: str) -> None:
    assert title_of(facts(told)) == title


def test_the_body_says_why_first_and_since_when_in_the_zone() -> None:
    assert body_of(facts(ITEM), "Europe/Berlin").splitlines() == [
        "no route to host",
        "Since 2026-01-01 01:00 CET",
        "Run 991: spyweb runs backup",
    ]
    assert "until 2026-01-01 00:27 UTC" in body_of(facts(CLOSED), "UTC")
    assert "It flaps" in body_of(facts(item(flapping=True)), "UTC")


def test_a_digest_names_the_gravest_first_and_counts_the_rest() -> None:
    told = facts(ITEM, CLOSED, item(incident=43, level=Level.CRITICAL), count=3)
    assert title_of(told) == "3 incidents: 2 open, 1 over"
    assert body_of(told, "UTC").splitlines() == [
        "#43 backup is down: 3 failures",
        "#42 backup is down: 3 failures",
        "#42 backup recovered after 27 m",
    ]
    cut = replace(told, count=500)
    assert title_of(cut) == "500 incidents"
    assert body_of(cut, "UTC").splitlines()[-1] == "and 497 more"


@pytest.mark.parametrize(
    ("told", "mood"),
    [
        ([ITEM], "warning"),
        ([item(level=Level.INFO)], "info"),
        ([ITEM, item(level=Level.CRITICAL)], "failure"),
        ([CLOSED], "success"),
        ([replace(CLOSED, level=Level.CRITICAL), item(level=Level.INFO)], "info"),
    ],
)
def test_the_colour_is_that_of_what_is_still_open(told: list[AlertItem], mood: str) -> None:
    assert mood_of(facts(*told)) == mood


def test_a_channel_that_is_tried_out_is_told_so() -> None:
    assert title_of(facts()) == "Test notification for the channel phone"
    assert body_of(facts(), "UTC") == "It works. Sent at 2026-01-01 00:27 UTC"
    assert mood_of(facts()) == "info"


def test_what_a_script_tells_is_its_own_text_and_who_told_it() -> None:
    assert body_of(facts(MESSAGE), "UTC") == "of 40\nbackup, run 991, 2026-01-01 00:00 UTC"
    assert mood_of(facts(MESSAGE)) == "info"


def test_several_of_a_script_are_named_and_the_rest_counted() -> None:
    several = facts(MESSAGE, replace(MESSAGE, title="no disk", level=Level.CRITICAL), count=7)
    assert title_of(several) == "7 messages of backup"
    assert body_of(several, "UTC") == "no disk\nthe backup has 12 GB\nand 5 more"
    assert mood_of(several) == "failure"


def test_a_link_to_take_care_stands_before_the_run() -> None:
    lines = body_of(facts(item(ack_url="https://example.org/a/42?s=x")), "UTC").splitlines()
    assert lines[-2:] == ["Acknowledge: https://example.org/a/42?s=x", "Run 991: spyweb runs backup"]
    assert not any("Acknowledge" in line for line in body_of(facts(ITEM), "UTC").splitlines())


def test_what_the_server_tells_names_no_run() -> None:
    asked = replace(MESSAGE, subject="job:/server", run=None)
    assert body_of(facts(asked), "UTC") == "of 40\n/server, 2026-01-01 00:00 UTC"
