"""What happens, as it is told."""

from __future__ import annotations

import json

import pytest

from spyweb.events.happenings import (
    KINDS,
    LONGEST_LINE,
    LONGEST_REASON,
    EventType,
    LogHappened,
    frame_of,
    line_logged,
    lines_in_file,
    run_happened,
    state_changed,
)
from spyweb.model import ChangeKind, JobId, Outcome, RunId
from spyweb.store.model.entries import ChangeEvent, Origin
from tests.fakes.clock import START_MS
from tests.fakes.daemon_service import PRICES, make_run


def test_every_type_has_its_kind() -> None:
    assert set(KINDS) == set(EventType)


def test_a_frame_is_three_lines_whatever_is_in_it() -> None:
    line = LogHappened(job=PRICES, level="info", text="a\r\nid: x\n\nevent: y\u2028", at_ms=1)
    frame = frame_of(EventType.LOG, "b-7", line)
    assert frame.endswith(b"\n\n")
    name, number, data = frame[:-2].split(b"\n")
    assert (name, number) == (b"event: log", b"id: b-7")
    assert json.loads(data.removeprefix(b"data: "))["text"] == line.text


def test_a_run_that_ended_says_how_and_the_beginning_of_why() -> None:
    told = run_happened("ended", make_run(3, outcome=Outcome.FAILED, reason="x" * 1000, items_new=2))
    assert (told.outcome, told.took_ms, told.items_new, told.reason) == (Outcome.FAILED, 1234, 2, "x" * LONGEST_REASON)


def test_a_change_of_state_has_no_value() -> None:
    event = ChangeEvent(
        id=0, namespace="state", key=b"\xff", kind=ChangeKind.UPDATED, old=b"secret", new=b"secret", version=3,
        at_ms=5, origin=Origin(job=PRICES, run=RunId(2)),
    )  # fmt: skip
    frame = frame_of(EventType.STATE, "b-1", state_changed(event))
    assert b"secret" not in frame
    assert json.loads(frame.partition(b"data: ")[2]) == {
        "what": "updated", "namespace": "state", "key": {"$base64": "/w=="}, "version": 3, "at_ms": 5, "job": "prices",
        "run": 2,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["x" * 100_000, b"\xff" * 100_000])
def test_a_long_line_is_cut(text: str | bytes) -> None:
    assert len(line_logged(PRICES, "info", text, 1, None).text) == LONGEST_LINE


def test_lines_of_the_file_are_read_as_they_were_told() -> None:
    stamp = "2026-01-01T00:00:00.120Z"
    told = lines_in_file(JobId("a"), [f"{stamp} WARN two", "    lines", "torn", f"{stamp} INFO ", f"{stamp} odd x"])
    assert [(line.level, line.text, line.at_ms) for line in told] == [
        ("warn", "two\nlines", START_MS + 120),
        ("info", "torn", START_MS + 120),
        ("info", "", START_MS + 120),
        ("info", f"{stamp} odd x", START_MS + 120),
    ]
    assert lines_in_file(JobId("a"), ["    rest"])[0].text == "    rest"
    assert lines_in_file(JobId("a"), []) == []


def test_a_time_that_is_none_does_not_keep_the_other_lines_from_being_read() -> None:
    (line,) = lines_in_file(JobId("a"), ["2026-99-01T00:00:00.000Z INFO x"])
    assert line.text == "2026-99-01T00:00:00.000Z INFO x"
