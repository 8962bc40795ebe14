"""How people are not woken: maintenance, and jobs that are paused, in a real daemon that tells a real receiver."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spyweb.model import JobId
from spyweb.subjects.incidents.views import IncidentView
from tests.fakes.hook import Hook, open_hook
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CONFIG = """[channels.ops]
webhook = "{url}"
[alerts]
to = ["ops"]
after_failures = 2
"""
TICK = JobId("tick")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "jobs").mkdir()
    return Project(tmp_path, is_quick=True)


@pytest.fixture
def hook() -> Iterator[Hook]:
    with open_hook() as hook:
        yield hook


def kinds_of(hook: Hook) -> list[str]:
    return [item["kind"] for body in hook.messages for item in json.loads(body)["items"]]


def incidents(project: Project) -> list[IncidentView]:
    return project.daemon_client().incidents(is_open=None, limit=10)


def test_in_maintenance_failures_do_not_count_and_once_it_is_taken_away_they_do(project: Project, hook: Hook) -> None:
    begin = datetime.now(UTC) - timedelta(minutes=1)
    window = f"[[maintenance]]\nstart = {begin:%FT%TZ}\nend = {begin + timedelta(hours=1):%FT%TZ}\njobs = ['ti*']\n"
    project.save("config.toml", CONFIG.format(url=hook.url) + window)
    project.job("tick", 'error("no")', 'every = "200ms"')
    with project.daemon():
        project.ended("tick", 6)
        assert incidents(project) == []
        project.save("config.toml", CONFIG.format(url=hook.url))
        (found,) = eventually(lambda: incidents(project), "an incident")
        assert found.since_ms > found.opened_ms - 5_000, "the row of failures began after it"
        eventually(lambda: kinds_of(hook) == ["opened"], "a message")

        project.save("config.toml", CONFIG.format(url=hook.url) + window)
        project.job("tick", "return 1", 'every = "200ms"')
        eventually(lambda: incidents(project)[0].closed_ms is not None, "its end")
        assert kinds_of(hook) == ["opened"], "which waits for the end of the maintenance"
        project.save("config.toml", CONFIG.format(url=hook.url))
        eventually(lambda: kinds_of(hook) == ["opened", "closed"], "the message about its end")


def test_maintenance_that_was_begun_outlasts_a_killed_daemon_and_is_ended_early(project: Project, hook: Hook) -> None:
    project.save("config.toml", CONFIG.format(url=hook.url))
    project.job("tick", "return 1", 'every = "200ms"\ntags = ["shop"]')
    project.job("other", "return 1", 'every = "1h"')
    refused = {"--job tock": "did you mean", "--tag shp": 'did you mean "shop"', "--job 'x*'": 'no job matches "x*"'}
    with project.daemon() as daemon:
        for words, expected in refused.items():
            assert expected in project.spyweb("maintenance", "begin", "1h", *shlex.split(words), code=2).stderr
        begun = project.spyweb("maintenance", "begin", "1h", "--tag", "shop", "--text", "move").stdout
        assert begun == "maintenance 1 has begun, for 1h\n"
        project.job("tick", 'error("no")', 'every = "200ms"\ntags = ["shop"]')
        daemon.kill()
    with project.daemon():
        eventually(lambda: sum(run.outcome == "failed" for run in project.runs("tick")) > 5, "failures")
        (window,) = project.ask("maintenance", "list")
        assert (window["tags"], window["job_count"], window["text"]) == (["shop"], 1, "move")
        assert incidents(project) == []
        assert project.spyweb("maintenance", "end", "1").stdout == "maintenance 1 has ended\n"
        eventually(lambda: incidents(project), "an incident")
        assert "no maintenance 1" in project.spyweb("maintenance", "end", "1", code=2).stderr
        audited = [line["action"] for line in project.ask("keys", "audit")]
    assert {"POST /api/maintenance", "DELETE /api/maintenance/{window}"} <= set(audited)


def test_a_job_that_fails_too_often_is_paused_also_where_the_daemon_died_before_it_could(
    project: Project, hook: Hook
) -> None:
    project.save("config.toml", CONFIG.format(url=hook.url) + "pause_after = 3\n")
    project.job("tick", 'error("no")', 'every = "300ms"')
    with project.daemon() as daemon:
        eventually(lambda: project.shown("tick").state == "paused", "a pause")
        shown = project.shown("tick")
        assert "failures in a row" in shown.paused_for
        assert shown.paused_for in project.spyweb("jobs").stdout
        (found,) = incidents(project)
        assert [note.text for note in found.notes] == [f"paused: {shown.paused_for}"]
        assert found.closed_ms is None
        eventually(lambda: kinds_of(hook) == ["opened"], "a message")
        daemon.kill()
    as_before_the_pause(project)
    with project.daemon():
        eventually(lambda: project.shown("tick").state == "paused", "another pause")
        eventually(lambda: kinds_of(hook) == ["opened"], "a message, before it is over")
        ran, before = len(project.runs("tick")), project.shown("tick").generation

        project.job("tick", "return 1", 'every = "300ms"')
        eventually(lambda: (now := project.shown("tick")).generation > before and not now.in_flight, "the new version")
        project.daemon_client().resume(TICK)
        project.ended("tick", ran + 1)
        eventually(lambda: incidents(project)[0].closed_ms is not None, "its end")
        assert project.shown("tick").paused_for == ""
        eventually(lambda: kinds_of(hook) == ["opened", "closed"], "two messages")


def test_what_a_failing_job_depends_on_is_run_at_once_and_told_in_its_place(project: Project, hook: Hook) -> None:
    project.save("config.toml", CONFIG.format(url=hook.url) + "[jobs.net.alerts]\nafter_failures = 1\n")
    project.job("net", 'error("no route")')
    project.job("tick", 'error("no")', 'every = "300ms"\nalerts = { depends_on = ["net"] }')
    with project.daemon():
        (ran,) = project.ended("net")
        assert (ran.trigger.type, ran.trigger.job) == ("depends", "tick")
        assert "no route" in (ran.reason or "")
        eventually(lambda: hook.bodies, "a message")
        ((job, kind),) = [(item["subject"], item["kind"]) for body in hook.bodies for item in json.loads(body)["items"]]
        assert (job, kind) == ("job:net", "opened")
        assert len(incidents(project)) == 2
        assert len(project.runs("net")) == 1


def as_before_the_pause(project: Project) -> None:
    """Put the database back to where it was after the last failure, before the job was paused."""
    with closing(sqlite3.connect(project.root / "data/spyweb.db")) as connection, connection:
        connection.execute("UPDATE cursor SET paused = 0, paused_for = '', idle_since_ms = NULL")
        assert connection.execute("UPDATE subject SET is_pausing = 1").rowcount == 1
