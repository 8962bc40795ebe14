"""Another program starts jobs of a real daemon, which Prometheus scrapes."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spyweb.subjects.hooks.service import sign
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECRET = "s3cret"
DEPLOY = """-- /// job
-- every = "never"
-- overlap = "queue"
-- retries = 1
-- retry_delay = 0
-- hook = { secret = "env:DEPLOY", hmac = "github", headers = ["x-github-event"] }
-- ///
function run(ctx)
  local sent = ctx.trigger
  if sent.payload.fails and ctx.attempt == 1 then error("not yet") end
  store_set("n", tostring(#sent.payload.text))
  return { type = sent.type, event = sent.headers["x-github-event"], size = #sent.payload.text,
    null = sent.payload.none == state.null, branch = sent.query.branch }
end
"""
NOTHING: Mapping[str, str] = {}


def send(url: str, body: Mapping[str, object], headers: Mapping[str, str] = NOTHING) -> tuple[int, object]:
    content = json.dumps(body).encode()
    signed = {"X-Hub-Signature-256": f"sha256={sign(SECRET.encode(), content)}", "X-GitHub-Event": "push"}
    request = urllib.request.Request(
        f"{url}/api/hooks/deploy?branch=main",
        data=content,
        headers={"Content-Type": "application/json", **signed, **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def metrics(url: str) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.save("jobs/deploy.lua", DEPLOY)
    project.environment["DEPLOY"] = SECRET
    return project


def test_a_signed_request_starts_a_run_that_sees_it_and_all_of_it_is_counted(project: Project) -> None:
    with project.daemon() as daemon:
        url = daemon.url
        assert send(url, {"text": "x"}, {"X-Hub-Signature-256": "sha256=00"})[0] == 401
        assert send(url, {"text": "x" * 300_000, "none": None})[0] == 202
        (run,) = project.ended("deploy")
        shown = json.loads(run.result)
        assert shown == {"type": "webhook", "event": "push", "size": 300_000, "null": True, "branch": "main"}

        assert send(url, {"text": "y" * 300_000, "none": None, "fails": True})[0] == 202
        second, *_ = project.ended("deploy", 3)
        assert json.loads(second.result)["type"] == "retry"
        assert json.loads(second.result)["size"] == 300_000

        with urllib.request.urlopen(f"{url}/readyz", timeout=20) as answer:
            assert json.load(answer) == {"ready": True, "reasons": []}
        found = metrics(url)
    assert found["spyweb_runs_started_total", "deploy"] == 3
    assert found["spyweb_runs_ended_total", "deploy", "success"] == 2
    assert found["spyweb_runs_ended_total", "deploy", "failed"] == 1
    assert found["spyweb_ops_total", "store_set"] == 2
    assert found[("spyweb_op_duration_seconds_count", "store_set")] == 2
    assert found[("spyweb_healthy",)] == 1
    assert found[("spyweb_workers",)] >= 2
    assert found["spyweb_job_last_success_timestamp_seconds", "deploy"] > 1_700_000_000


def test_a_request_that_is_repeated_after_the_daemon_was_killed_starts_no_second_run(project: Project) -> None:
    key = {"Idempotency-Key": "event-1"}
    project.save("config.toml", "[metrics]\nper_job = false\n")
    with project.daemon() as daemon:
        first = send(daemon.url, {"text": "x"}, key)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
    with project.daemon() as daemon:
        assert send(daemon.url, {"text": "x"}, key) == first
        assert send(daemon.url, {"text": "other"}, key)[0] == 422
        eventually(lambda: all(run.outcome for run in project.runs("deploy")), "the end of all runs")
        assert {labels[1] for labels in metrics(daemon.url) if "runs_ended" in labels[0]} == {"_other"}
        begun_by_hook = [run for run in project.runs("deploy") if run.trigger.type == "webhook"]
    assert len(begun_by_hook) == 1
