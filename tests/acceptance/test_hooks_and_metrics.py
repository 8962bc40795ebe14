"""Another program starts jobs of a real daemon, which Prometheus scrapes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spyweb.subjects.hooks.service import sign
from tests.fakes.project import Daemon, Project, eventually

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


def send(daemon: Daemon, body: Mapping[str, object], headers: Mapping[str, str] = NOTHING) -> tuple[int, object]:
    content = json.dumps(body).encode()
    signed = {"X-Hub-Signature-256": f"sha256={sign(SECRET.encode(), content)}", "X-GitHub-Event": "push"}
    given = {"Content-Type": "application/json", **signed, **headers}
    answer = daemon.ask("/api/hooks/deploy?branch=main", "POST", content, **given)
    return answer.status, answer.json


def metrics(daemon: Daemon) -> dict[tuple[str, ...], float]:
    families = list(text_string_to_metric_families(daemon.ask("/metrics").body.decode()))
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.save("jobs/deploy.lua", DEPLOY)
    project.environment["DEPLOY"] = SECRET
    return project


def test_a_signed_request_starts_a_run_that_sees_it_and_all_of_it_is_counted(project: Project) -> None:
    with project.daemon() as daemon:
        assert send(daemon, {"text": "x"}, {"X-Hub-Signature-256": "sha256=00"})[0] == 401
        assert send(daemon, {"text": "x" * 300_000, "none": None})[0] == 202
        (run,) = project.ended("deploy")
        shown = json.loads(run.result)
        assert shown == {"type": "webhook", "event": "push", "size": 300_000, "null": True, "branch": "main"}

        assert send(daemon, {"text": "y" * 300_000, "none": None, "fails": True})[0] == 202
        second, *_ = project.ended("deploy", 3)
        assert json.loads(second.result)["type"] == "retry"
        assert json.loads(second.result)["size"] == 300_000

        assert daemon.ask("/readyz").json == {"ready": True, "reasons": []}
        found = metrics(daemon)
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
        first = send(daemon, {"text": "x"}, key)
        daemon.kill()
    with project.daemon() as daemon:
        assert send(daemon, {"text": "x"}, key) == first
        assert send(daemon, {"text": "other"}, key)[0] == 422
        eventually(lambda: all(run.outcome for run in project.runs("deploy")), "the end of all runs")
        assert {labels[1] for labels in metrics(daemon) if "runs_ended" in labels[0]} == {"_other"}
        begun_by_hook = [run for run in project.runs("deploy") if run.trigger.type == "webhook"]
    assert len(begun_by_hook) == 1
