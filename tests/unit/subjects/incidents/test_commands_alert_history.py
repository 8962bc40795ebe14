"""`spyweb alerts history`: a bar for each subject, and the incidents of a span."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.incidents.truth import Event, Failed, Succeeded
from spyweb.model import JobId
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.sqlite.store import open_store
from spyweb.subjects.incidents.commands import CELLS, PARTLY, WELL, WRONG, HistorySpan, SubjectBar, cells_of, draw
from spyweb.subjects.incidents.views import IncidentView
from tests.fakes.command import spyweb
from tests.fakes.incidents import AT_ONCE, KNOWN

HOUR_MS = 3_600_000
WHOLE = HistorySpan(0, CELLS * 1_000)  # a second each


def incident(since_ms: int, closed_ms: int | None, job: str | None = "prices") -> IncidentView:
    of = JobId(job) if job else None
    return replace(
        KNOWN, since_ms=since_ms, closed_ms=closed_ms, job_id=of, subject=f"job:{job}" if job else "channel:ops"
    )


@pytest.mark.parametrize(
    ("spans", "cells"),
    [
        ([], WELL * CELLS),
        ([WHOLE], WRONG * CELLS),
        ([HistorySpan(1_000, 1_000)], WELL + PARTLY + WELL * (CELLS - 2)),
        ([HistorySpan(0, 499), HistorySpan(1_400, 2_600)], PARTLY + WRONG * 2 + WELL * (CELLS - 3)),
        ([HistorySpan(0, 250), HistorySpan(500, 750)], WRONG + WELL * (CELLS - 1)),
        ([HistorySpan(CELLS * 1_000 - 10, CELLS * 1_000)], WELL * (CELLS - 1) + PARTLY),
    ],
)
def test_what_was_wrong_is_drawn_however_short_it_was(spans: list[HistorySpan], cells: str) -> None:
    assert cells_of(spans, WHOLE) == cells


def test_a_span_of_a_moment_is_drawn() -> None:
    assert cells_of([HistorySpan(5, 5)], HistorySpan(5, 5)) == PARTLY + WELL * (CELLS - 1)


def test_each_subject_has_a_bar_the_worst_first_within_the_span() -> None:
    found = [incident(-5_000, 1_000), incident(2_000, 3_000), incident(0, None, "backup"), incident(9_000, 9_500, None)]
    bars = draw(found, WHOLE)
    assert [(bar.subject, bar.incidents, bar.wrong_ms) for bar in bars] == [
        ("backup", 1, CELLS * 1_000),
        ("prices", 2, 2_000),
        ("channel:ops", 1, 500),
    ]
    assert bars[1] == SubjectBar("prices", WRONG + PARTLY + WRONG + PARTLY + WELL * (CELLS - 4), 2, 2_000)


@pytest.fixture
def wrong(project: Path) -> Path:
    """Prices was wrong two days ago for six hours, backup is since an hour, and old was ten days ago."""
    now_ms = RealClock().now_ms()

    async def add() -> None:
        store = await open_store(project / "data" / "spyweb.db", clock=RealClock())

        async def happen(job: str, event: Event, hours_ago: int) -> None:
            at_ms = now_ms - hours_ago * HOUR_MS
            await store.incidents.note([SubjectEvent(subject=f"job:{job}", event=event, policy=AT_ONCE, at_ms=at_ms)])

        for job, began, ended in (("old", 240, 239), ("prices", 48, 42)):
            await happen(job, Failed("no space"), began)
            await happen(job, Succeeded(), ended)
        await happen("backup", Failed("no route"), 1)
        await store.close()

    asyncio.run(add())
    return project


def test_a_week_is_shown_with_bars_and_the_incidents(wrong: Path) -> None:
    answer = spyweb("alerts", "history", root=wrong)
    assert answer.lines[0].startswith("subject")
    assert "7d up to now" in answer.lines[0]
    prices, backup = (line.split() for line in answer.lines[1:3])
    assert (prices[0], len(prices[1]), prices[2:]) == ("prices", CELLS, ["1", "6h", "3.6", "%"])
    assert prices[1].strip(WELL) in (WRONG + PARTLY, PARTLY + WRONG, WRONG + WRONG, WRONG, PARTLY + WRONG + PARTLY)
    assert (backup[0], backup[1][-1], backup[2]) == ("backup", PARTLY, "1")
    assert [line.split()[:3] for line in answer.lines[5:]] == [["3", "backup", "warning"], ["2", "prices", "warning"]]
    assert "1h, open" in answer.lines[5]


def test_a_span_a_job_and_a_number_are_chosen(wrong: Path) -> None:
    def ids(*words: str) -> list[object]:
        found = spyweb("alerts", "history", *words, "-o", "json", root=wrong).json
        return [each["id"] for each in found]

    assert ids() == [3, 2]
    assert ids("--since", "30d") == [3, 2, 1]
    assert ids("--since", "2h") == [3]
    assert ids("--job", "prices") == [2]
    assert ids("--job", "old", "--since", "30d") == [1]
    assert ids("-n", "1") == [3]
    assert "the newest 1: -n shows more" in spyweb("alerts", "history", "-n", "1", root=wrong).err


def test_what_can_not_be_shown_is_said(wrong: Path) -> None:
    assert spyweb("alerts", "history", "--job", "prices", "--since", "1h", root=wrong).err == (
        "nothing was wrong in the last 1h\n"
    )
    unknown = spyweb("alerts", "history", "--job", "price", root=wrong)
    assert (unknown.code, "prices" in unknown.err) == (2, True)
    unclear = spyweb("alerts", "history", "--since", "soon", root=wrong)
    assert (unclear.code, "'soon'" in unclear.err) == (2, True)
    assert spyweb("alerts", "history", "--since", "1s", root=wrong).code == 2
