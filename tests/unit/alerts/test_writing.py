"""Texts of messages, with the end of a run's log, and without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from spyweb.alerts.texts import AlertItem, decode_facts
from spyweb.alerts.writing import (
    LOG_LINES,
    LONGEST_LOG,
    TEMPLATE_FACTS,
    AlertText,
    AlertWriter,
    shortened,
    template_facts,
)
from spyweb.errors import StoreError
from spyweb.incidents.telling import MessageKind
from spyweb.logs.job import stamped
from spyweb.model import Outcome, RunId, RunState, Trigger
from spyweb.store.model.runs import Change, End, NewRun
from tests.fakes.alerts import PAYLOAD
from tests.fakes.clock import START_MS
from tests.fakes.harness import Harness, harness, make_job

FACTS = decode_facts(PAYLOAD)
(ITEM,) = FACTS.items


def writer_of(h: Harness, root: Path, environ: Mapping[str, str]) -> AlertWriter:
    return AlertWriter(timezone="UTC", pages="", root=root, live=h.live, past_runs=h.store.past_runs, environ=environ)


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
        item: AlertItem = replace(ITEM, **{"run": run, **changes})
        return await writer_of(h, root, environ).compose(replace(FACTS, items=(item,)))


async def test_an_opening_has_the_last_lines_of_its_run_and_of_no_other(tmp_path: Path) -> None:
    text = await written(tmp_path, *(f"line {number}" for number in range(8)))
    assert text.body.startswith("no space\nSince")
    assert text.body.endswith("\n\nLast in its log:\n" + "\n".join(f"INFO line {number}" for number in range(3, 8)))
    assert json.loads(text.facts)["log"].splitlines()[-1] == "INFO line 7"


async def test_a_run_without_a_log_has_none(tmp_path: Path) -> None:
    assert "log" not in (await written(tmp_path)).body


async def test_what_is_told_later_does_not_repeat_the_log(tmp_path: Path) -> None:
    for kind in (MessageKind.REMINDER, MessageKind.CLOSED):
        assert "Last in" not in (await written(tmp_path / kind, "line", kind=kind)).body
    assert "Last in" in (await written(tmp_path / "was", "line", kind=MessageKind.WAS)).body


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
        writer = writer_of(h, tmp_path, {})
        facts = replace(FACTS, items=(replace(ITEM, run=RunId(99)),))
        body = (await writer.compose(facts)).body
        assert body.startswith("no space\n")

        class Refusing:
            async def find(self, run: RunId) -> None:
                raise StoreError("no")

        refused = AlertWriter(
            timezone="UTC",
            pages="",
            root=tmp_path,
            live=h.live,
            past_runs=Refusing(),  # type: ignore[arg-type]
            environ={},
        )
        assert (await refused.compose(facts)).body == body


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
        writer = AlertWriter(
            timezone="UTC", pages=pages, root=tmp_path, live=h.live, past_runs=h.store.past_runs, environ={}
        )
        text = await writer.compose(replace(FACTS, items=(replace(ITEM, kind=MessageKind.CLOSED),)))
        assert text.body.endswith(f"More of it: {pages}incidents/42")
        assert json.loads(text.facts)["page_url"] == f"{pages}incidents/42"
        for facts in (replace(FACTS, count=30), replace(FACTS, items=(replace(ITEM, incident=None),))):
            assert pages not in (await writer.compose(facts)).body
