"""`spyweb alerts`: against a database, and against a daemon's socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.incidents.truth import Event, Failed, Succeeded
from spyweb.model import JobId
from spyweb.settings.alerts import AlertSettings
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.sqlite.store import open_store
from spyweb.subjects.incidents.commands import CELLS, PARTLY, WELL, WRONG, HistorySpan, SubjectBar, cells_of, draw
from spyweb.subjects.incidents.views import IncidentChannel, IncidentView, SignView
from tests.fakes.clock import FakeClock
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.daemon_socket import serve_daemon_socket
from tests.fakes.incidents import AT_ONCE, KNOWN, FakeIncidents, fail, succeed


def leave(root: Path) -> None:
    """One of backup, which is over, and one of prices, which is open."""

    async def add() -> None:
        store = await open_store(root / "data" / "spyweb.db", clock=FakeClock())
        await fail(store.incidents, "backup")
        await succeed(store.incidents, "backup")
        await fail(store.incidents, "prices")
        await store.close()

    asyncio.run(add())


def test_what_is_wrong_is_a_table_and_with_all_what_was(project: Path) -> None:
    assert spyweb("alerts", "list", root=project).err == "no open incidents\n"
    leave(project)
    answer = spyweb("alerts", "list", root=project)
    assert " ".join(answer.lines[0].split()) == "id subject level since lasts reason acknowledged by notified text"
    (row,) = answer.table
    assert (row[:3], row[-2:]) == (["2", "prices", "warning"], ["failing", "no space"])
    assert [row[1] for row in spyweb("alerts", "list", "--all", root=project).table] == ["prices", "backup"]
    found = spyweb("alerts", "list", "--all", "-o", "json", root=project).json
    assert [each["state"] for each in found] == ["open", "closed"]


def test_one_is_shown_and_somebody_takes_care(project: Path) -> None:
    leave(project)
    assert spyweb("alerts", "ack", "2", "--by", "me", root=project).out == "incident 2 was acknowledged by me\n"
    shown = spyweb("alerts", "show", "2", root=project).out
    assert "acknowledged by me" in shown
    assert "failing: no space" in shown
    assert spyweb("alerts", "show", "2", "-o", "json", root=project).json["acked_by"] == "me"
    assert spyweb("alerts", "unack", "2", "--by", "me", root=project).out == "incident 2 is no longer acknowledged\n"
    assert spyweb("alerts", "show", "2", "-o", "json", root=project).json["acked_by"] == ""
    assert spyweb("alerts", "unack", "2", root=project).code == 2


def test_a_note_is_added_and_shown_with_who_has_written_it(project: Path) -> None:
    leave(project)
    noted = spyweb("alerts", "note", "1", "a full disk", "--public", "--by", "me", root=project)
    assert noted.out == "noted on incident 1, in public\n"
    assert spyweb("alerts", "note", "1", "ask Ann", "--by", "me", root=project).out == "noted on incident 1\n"
    shown = spyweb("alerts", "show", "1", root=project).out
    assert "me: a full disk" in shown
    assert "me: ask Ann" in shown
    assert "there is no incident 9" in spyweb("alerts", "note", "9", "x", root=project).err


def test_a_job_is_silent_for_a_while(project: Path) -> None:
    leave(project)
    assert spyweb("alerts", "silence", "prices", "2h", "--by", "me", root=project).out == "prices is silenced for 2h\n"
    assert spyweb("alerts", "unsilence", "prices", "--by", "me", root=project).out == "prices is no longer silenced\n"
    shown = spyweb("alerts", "show", "2", root=project).out
    assert "silenced by me" in shown
    assert "unsilenced by me" in shown
    assert "must be at least 1m" in spyweb("alerts", "silence", "prices", "2s", root=project).err
    assert spyweb("alerts", "silence", "prise", "2h", root=project).code == 2


def test_a_daemon_is_asked_where_one_runs(project: Path) -> None:
    service = FakeDaemonService(root=project)
    asyncio.run(fail(service.stored_incidents, "backup"))
    asyncio.run(succeed(service.stored_incidents, "backup"))
    asyncio.run(fail(service.stored_incidents))
    with serve_daemon_socket(service, project / "data"):
        for words, count in (([], 1), (["--all"], 2)):
            assert len(spyweb("alerts", "list", *words, root=project).table) == count
        assert "no space" in spyweb("alerts", "show", "2", root=project).out
        assert spyweb("alerts", "ack", "2", "--by", "me", root=project).code == 0
        assert spyweb("alerts", "note", "2", "see above", "--by", "me", root=project).code == 0
        assert spyweb("alerts", "silence", "prices", "2h", "--by", "me", root=project).code == 0
        silent = asyncio.run(service.incidents.get(2))
        assert spyweb("alerts", "unsilence", "prices", "--by", "me", root=project).code == 0
    assert silent.silent_until_ms == service.clock.now_ms() + 7_200_000
    told = [note.text for note in asyncio.run(service.incidents.get(2)).notes]
    assert told[-4:] == ["acknowledged by me", "see above", "silenced by me", "unsilenced by me"]


def test_a_channel_is_tried_out_by_the_daemon_alone(project: Path) -> None:
    assert "no daemon runs" in spyweb("alerts", "test", "ops", root=project).err
    with serve_daemon_socket(FakeDaemonService(root=project), project / "data"):
        fine = spyweb("alerts", "test", "ops", root=project)
        assert (fine.code, fine.out) == (0, "delivered to ops\n")
        bad = spyweb("alerts", "test", "phone", root=project)
        assert (bad.code, bad.out) == (1, "phone: answered 401\n")
        unknown = spyweb("alerts", "test", "nope", root=project)
        assert (unknown.code, unknown.err) == (2, "spyweb: there is no channel nope\n")


def test_who_was_told_or_what_holds_it_is_listed_and_shown(project: Path) -> None:
    service = FakeDaemonService(root=project)
    service.incidents = known = FakeIncidents(service.stored_incidents)
    at_once, later = (
        IncidentChannel(name=name, told="", from_ms=from_ms, held=held)
        for name, from_ms, held in (("phone", 0, "quiet until 07:00"), ("boss", 1 << 42, ""))
    )
    signs = {"failing": SignView(since_ms=0, text="no space"), "late": SignView(since_ms=0, text="not begun")}
    held = replace(KNOWN, held="quiet until 07:00", channels=[at_once, later], signs=signs)
    with serve_daemon_socket(service, project / "data"):
        known.known = held
        assert "quiet until 07:00" in spyweb("alerts", "list", root=project).table[0]
        shown = {row[0]: row[1:] for row in spyweb("alerts", "show", "1", root=project).table}
        assert shown["failures"] == ["1"]
        assert shown["held"] == shown["notifies phone"] == ["quiet until 07:00"]
        assert shown["notifies boss"][0].endswith("unless acknowledged")
        assert shown["now late"][0].startswith("not begun, since ")
        told = {"ops": "open", "mail": "closed", "night": "spared"}
        known.known = replace(held, told=told, undelivered={"mail": "timed out"}, acked_ms=1, acked_by="me")
        words = "delivered to ops; end not delivered to mail yet: timed out; held: quiet until 07:00"
        assert words in spyweb("alerts", "list", root=project).table[0]
        shown = {row[0]: row[1:] for row in spyweb("alerts", "show", "1", root=project).table}
        assert shown["channel ops"] == ["delivered"]
        assert shown["channel mail"] == ["end not delivered yet: timed out"]
        assert shown["channel night"] == ["not notified: closed before"]
        assert "notifies boss" not in shown


def test_channels_are_listed_by_the_daemon_without_their_secrets(project: Path) -> None:
    assert "no daemon runs" in spyweb("alerts", "channels", root=project).err
    service = FakeDaemonService(root=project)
    service.tallies.attempted("ops", "answered 500")
    with serve_daemon_socket(service, project / "data"):
        answer = spyweb("alerts", "channels", root=project)
        found = spyweb("alerts", "channels", "-o", "json", root=project).json
        service.alert_settings = AlertSettings()
        nothing = spyweb("alerts", "channels", root=project)
    assert [row[:3] for row in answer.table] == [["ops", "webhook", "example.org"], ["phone", "ntfy", "critical"]]
    assert answer.table[0][-1].endswith("answered 500")
    assert "s3cret" not in answer.out
    assert [each["name"] for each in found] == ["ops", "phone"]
    assert nothing.err == "config.toml has no channels: [channels.NAME]\n"


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
    assert cells_of([HistorySpan(5, 5)], HistorySpan(5, 5)) == PARTLY + WELL * (CELLS - 1), "a span of a moment"


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
        "no incident in the last 1h\n"
    )
    unknown = spyweb("alerts", "history", "--job", "price", root=wrong)
    assert (unknown.code, "prices" in unknown.err) == (2, True)
    unclear = spyweb("alerts", "history", "--since", "soon", root=wrong)
    assert (unclear.code, "'soon'" in unclear.err) == (2, True)
    assert spyweb("alerts", "history", "--since", "1s", root=wrong).code == 2
