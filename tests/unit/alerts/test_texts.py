"""What people read about incidents, with the end of a run's log, and without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spyweb.alerts.texts import (
    LOG_LINES,
    LONGEST_LOG,
    TEMPLATE_FACTS,
    AlertFacts,
    AlertItem,
    AlertText,
    AlertWriter,
    body_of,
    decode_facts,
    mood_of,
    shortened,
    template_facts,
    title_of,
)
from spyweb.errors import StoreError
from spyweb.incidents.policy import Level
from spyweb.incidents.telling import MessageKind
from spyweb.logs.job import stamped
from spyweb.logs.secrets import secrets_in
from spyweb.model import Outcome, RunId, RunState, Trigger
from spyweb.store.model.runs import Change, End, NewRun
from tests.fakes.alerts import PAYLOAD
from tests.fakes.clock import START_MS
from tests.fakes.harness import Harness, harness, make_job

MINUTE, HOUR = 60_000, 3_600_000
ITEM = AlertItem(
    incident=42, kind=MessageKind.OPENED, subject="job:backup", level=Level.WARNING, reason="failing",
    text="no route to host", run=RunId(991), since_ms=START_MS, opened_ms=START_MS + 2 * MINUTE, closed_ms=None,
    failures=3, flapping=False,
)  # fmt: skip


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
        (item(subject="channel:phone", reason="down"), "#42 the channel phone does not deliver"),
        (item(subject="daemon:disk", reason="stuck", failures=0), "#42 spyweb's disk does not answer"),
        (item(subject="daemon:scheduler", reason="behind", failures=0), "#42 spyweb's scheduler is behind"),
        (item(subject="daemon:store", reason="refusing", failures=0), "#42 spyweb's store refuses writes"),
        (item(subject="daemon:workers", reason="missing", failures=0), "#42 spyweb's worker pool has no worker"),
        (item(reason="broken", failures=0), "#42 backup can't be loaded"),
        (item(reason="held_back", failures=3), "#42 backup no longer runs"),
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
    named = replace(facts(item(name="Nightly backup")), instance="web-1")
    assert title_of(named) == "#42 Nightly backup is down: 3 failures"
    assert "Run 991: spyweb runs backup\nspyweb on web-1" in body_of(named, "UTC")
    assert "Flapping: " in body_of(facts(item(flapping=True)), "UTC")


def test_a_digest_names_the_gravest_first_and_counts_the_rest() -> None:
    told = facts(ITEM, CLOSED, item(incident=43, level=Level.CRITICAL), count=3)
    assert title_of(told) == "3 incidents: 2 open, 1 closed"
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
    assert body_of(facts(), "UTC") == "Sent 2026-01-01 00:27 UTC: notifications of incidents arrive here."
    assert mood_of(facts()) == "info"


def test_what_a_script_tells_is_its_own_text_and_who_told_it() -> None:
    assert body_of(facts(MESSAGE), "UTC") == "of 40\nbackup, run 991, 2026-01-01 00:00 UTC"
    assert mood_of(facts(MESSAGE)) == "info"
    by_server = replace(MESSAGE, subject="job:/server", run=None)
    assert body_of(facts(by_server), "UTC") == "of 40\n/server, 2026-01-01 00:00 UTC"


def test_several_of_a_script_are_named_and_the_rest_counted() -> None:
    several = facts(MESSAGE, replace(MESSAGE, title="no disk", level=Level.CRITICAL), count=7)
    assert title_of(several) == "7 messages of backup"
    assert body_of(several, "UTC") == "no disk\nthe backup has 12 GB\nand 5 more"
    assert mood_of(several) == "failure"


def test_a_link_to_take_care_stands_before_the_run() -> None:
    lines = body_of(facts(item(ack_url="https://example.org/a/42?s=x")), "UTC").splitlines()
    assert lines[-2:] == ["Acknowledge: https://example.org/a/42?s=x", "Run 991: spyweb runs backup"]
    assert not any("Acknowledge" in line for line in body_of(facts(ITEM), "UTC").splitlines())


FACTS = decode_facts(PAYLOAD)
(STORED,) = FACTS.items


def writer_of(h: Harness, root: Path, environ: Mapping[str, str] = {}, **changes: Any) -> AlertWriter:
    usual = {"timezone": "UTC", "pages": "", "root": root, "live": h.live, "past_runs": h.store.past_runs}
    return AlertWriter(**{**usual, "secrets": secrets_in(environ), **changes})


async def written(root: Path, *lines: str, environ: Mapping[str, str] = {}, **changes: object) -> AlertText:
    """Write of an incident that began with a run whose log has these lines, between those of two others."""
    async with harness() as h:
        job = make_job("backup")
        await h.settle(job)
        new = NewRun(job=job.spec.id, state=RunState.RUNNING, trigger=Trigger(type="manual"), started_ms=START_MS)
        (run,) = await h.store.runs.record(Change(new=[new]))
        assert run is not None
        end = End(run=run, ended_ms=START_MS + 10, outcome=Outcome.FAILED, reason="no space")
        await h.store.runs.record(Change(end=[end]))
        folder = root / job.spec.folder
        folder.mkdir(parents=True)
        logged = [(START_MS - 1, "before"), *((START_MS + 5, line) for line in lines), (START_MS + 11, "after")]
        (folder / "hooks.log").write_bytes(b"".join(stamped(at_ms, "info", line) for at_ms, line in logged))
        item: AlertItem = replace(STORED, **{"run": run, **changes})
        return await writer_of(h, root, environ).compose(replace(FACTS, items=(item,)))


async def test_an_opening_has_the_last_lines_of_its_run_and_of_no_other(tmp_path: Path) -> None:
    text = await written(tmp_path, *(f"line {number}" for number in range(8)))
    assert text.body.startswith("no space\nSince")
    assert text.body.endswith("\n\nLast log lines:\n" + "\n".join(f"INFO line {number}" for number in range(3, 8)))
    assert json.loads(text.facts)["log"].splitlines()[-1] == "INFO line 7"


async def test_a_run_without_a_log_has_none(tmp_path: Path) -> None:
    assert "log" not in (await written(tmp_path)).body


async def test_what_is_told_later_does_not_repeat_the_log(tmp_path: Path) -> None:
    for kind in (MessageKind.REMINDER, MessageKind.CLOSED):
        assert "Last log" not in (await written(tmp_path / kind, "line", kind=kind)).body
    assert "Last log" in (await written(tmp_path / "was", "line", kind=MessageKind.WAS)).body


async def test_no_secret_leaves_with_a_line(tmp_path: Path) -> None:
    text = await written(
        tmp_path,
        "GET https://me:hunter2@example.org/?token=hunter2",
        "Authorization: Bearer hunter2",
        "got hunter2-of-the-environment",
        environ={"DB_PASSWORD": "hunter2-of-the-environment", "LANG": "C.UTF-8"},
    )
    assert "hunter2" not in f"{text.title}{text.body}{text.facts!r}"
    assert "GET https://me:[hidden]@example.org/" in text.body


async def test_a_run_that_is_gone_and_a_store_that_refuses_cost_the_log_alone(tmp_path: Path) -> None:
    async with harness() as h:
        writer = writer_of(h, tmp_path)
        facts = replace(FACTS, items=(replace(STORED, run=RunId(99)),))
        body = (await writer.compose(facts)).body
        assert body.startswith("no space\n")

        class Refusing:
            async def find(self, run: RunId) -> None:
                raise StoreError("no")

        assert (await writer_of(h, tmp_path, past_runs=Refusing()).compose(facts)).body == body


def test_long_lines_are_cut_and_the_newest_are_kept() -> None:
    assert shortened(["x" * 5000]) == [f"{'x' * (LONGEST_LOG - 2)}…"]
    found = shortened(["old", "a" * 600, "b" * 600])
    assert (found[-1], found[0][-1]) == ("b" * 600, "…")
    assert sum(map(len, found)) <= LONGEST_LOG
    assert len(shortened(["x"] * 100)) == LOG_LINES


def test_a_template_names_the_facts_of_one_incident_and_the_kind_of_a_digest() -> None:
    more = {"title": "T", "log": "a\nb", "page_url": ""}
    one = json.loads(template_facts(FACTS, "B", more))
    assert (one["kind"], one["incident"], one["channel"], len(one["items"])) == ("opened", 42, "ops", 1)
    assert (one["title"], one["text"], one["log"]) == ("T", "no space", "a\nb")
    many = json.loads(template_facts(replace(FACTS, count=30), "B", more))
    assert (many["kind"], many["count"], many["text"], many["level"]) == ("digest", 30, "B", "warning")
    none = json.loads(template_facts(replace(FACTS, items=(), count=0), "B", more))
    assert (none["kind"], none["text"], none["level"], none["incident"]) == ("test", "B", "info", "")
    assert {frozenset(each) for each in (one, many, none)} == {frozenset(TEMPLATE_FACTS)}


async def test_a_message_about_one_incident_leads_to_its_page_where_others_reach_the_dashboard(tmp_path: Path) -> None:
    async with harness() as h:
        pages = "https://spyweb.example.org/_spyweb/"
        writer = writer_of(h, tmp_path, pages=pages)
        text = await writer.compose(replace(FACTS, items=(replace(STORED, kind=MessageKind.CLOSED),)))
        assert text.body.endswith(f"Details: {pages}incidents/42")
        assert json.loads(text.facts)["page_url"] == f"{pages}incidents/42"
        for facts in (replace(FACTS, count=30), replace(FACTS, items=(replace(STORED, incident=None),))):
            assert pages not in (await writer.compose(facts)).body
