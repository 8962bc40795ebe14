"""What happens in a real daemon, as its clients are told of it over real HTTP."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from spyweb.model import JobId
from tests.fakes.http_client import connect
from tests.fakes.project import COMMAND, Daemon, Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

Events = Iterator[tuple[str, dict[str, object]]]


@contextmanager
def stream(daemon: Daemon, path: str) -> Iterator[http.client.HTTPResponse]:
    with closing(connect(daemon.url)) as connection:
        connection.request("GET", path)
        yield connection.getresponse()


def frames(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    while line := answer.readline():
        text = line.decode().rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            is_more = name == "data" and name in fields
            fields[name] = (f"{fields[name]}\n" if is_more else "") + value.removeprefix(" ")
        elif "event" in fields or "id" in fields:
            yield fields
            fields = {}


def events(answer: http.client.HTTPResponse) -> Events:
    return ((frame["event"], json.loads(frame["data"])) for frame in frames(answer) if "event" in frame)


def test_runs_jobs_state_and_lines_are_told_as_they_happen(project: Project) -> None:
    project.job("talk", 'log.warn("größer")\nstate.set("n", 1)\nstore_set("own", "secret")')
    with project.daemon() as daemon, stream(daemon, "/api/events?types=run,log,state,job&job=talk") as answer:
        mark = next(frames(answer))["id"]
        project.spyweb("trigger", "talk")
        found = events(answer)
        told = [next(found) for _ in range(5)]
        kinds = sorted(kind for kind, _ in told)
        assert kinds == ["log", "run", "run", "state", "state"]
        by_kind = {f"{kind} {fields.get('what', '')}": fields for kind, fields in told}
        assert (by_kind["run ended"]["outcome"], by_kind["run ended"]["trigger"]) == ("success", "manual")
        assert (by_kind["log "]["text"], by_kind["log "]["run"]) == ("größer", by_kind["run began"]["run"])
        assert "secret" not in str(told)

        project.spyweb("pause", "talk")
        assert next(found)[1]["what"] == "paused"
        project.job("talk", 'log.warn("kleiner")')
        assert next(found)[1]["what"] in ("reloaded", "settings")

        with stream(daemon, f"/api/events?types=run&job=talk&last_event_id={mark}") as again:
            assert [next(events(again))[1]["what"], next(events(again))[1]["what"]] == ["began", "ended"]

        began = time.monotonic()
        daemon.stop()
        assert time.monotonic() - began < 3, "open streams do not delay a stop"
        assert not [kind for kind, _ in found if kind == "reset"]


def test_after_a_restart_a_mark_is_a_reset(project: Project) -> None:
    project.job("talk", "return 1")
    with project.daemon() as daemon, stream(daemon, "/api/events") as answer:
        mark = next(frames(answer))["id"]
    with project.daemon() as daemon, stream(daemon, f"/api/events?last_event_id={mark}") as answer:
        assert next(events(answer))[0] == "reset"


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_logs_are_followed_here_and_on_another_machine(project: Project, tmp_path: Path, is_elsewhere: bool) -> None:
    project.job("flaky", 'log("about\\nto fail") return nil, "it is down"', 'every = "never"\noverlap = "allow"')
    with project.daemon() as daemon, (tmp_path / "followed").open("w+") as out:
        project.spyweb("trigger", "flaky")
        project.ended("flaky")
        place = ["--url", daemon.url] if is_elsewhere else ["-C", str(project.root)]
        words = [*COMMAND, *place, "logs", "flaky", "-f"]
        follower = subprocess.Popen(words, env=project.environment, stdout=out, stderr=subprocess.DEVNULL)
        try:
            followed = eventually(lambda: shown_twice(project, tmp_path / "followed"))
            failures = re.findall(r"Z ERROR run (\d+) failed: it is down\n", followed)
            assert len(set(failures)) == len(failures)
            assert len(set(re.findall(r"^\S+Z INFO about$", followed, re.MULTILINE))) == followed.count("INFO about")
            daemon.stop()
            if is_elsewhere:
                assert follower.wait(20) == 2
            else:  # it goes on with the next one
                with project.daemon():
                    before = followed.count("Z ERROR run ")
                    eventually(lambda: shown_twice(project, tmp_path / "followed").count("Z ERROR run ") > before)
        finally:
            follower.kill()
            follower.wait()


def shown_twice(project: Project, file: Path) -> str:
    """Start a run, and return what was shown once two have failed since the beginning."""
    project.daemon_client().trigger(JobId("flaky"))
    time.sleep(0.2)
    followed = file.read_text()
    enough = followed.count("Z ERROR run ") >= 2 and followed.count("    to fail\n") >= 3
    return followed if enough else ""
