"""Two real daemons on one PostgreSQL: whichever is asked answers for all."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spyweb.model import JobId, Outcome
from tests.fakes.postgres import PostgresPlace
from tests.fakes.project import eventually
from tests.fakes.real_nodes import RealNode, pin, real_nodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

Nodes = tuple[RealNode, RealNode]


@pytest.fixture
def nodes(tmp_path: Path, postgres: PostgresPlace) -> Iterator[Nodes]:
    """Give fra, which is asked, and ber, which runs the jobs."""
    pin(tmp_path, "ber", "prices", 'log("3 prices")\nreturn 3', 'every = "never"\nhook = {}')
    pin(tmp_path, "ber", "sleeper", 'log("asleep")\nsleep(60000)')
    pin(tmp_path, "ber", "fails", 'error("no")')
    with real_nodes(tmp_path, postgres) as both:
        yield both


def test_commands_at_another_node_run_a_job_show_its_log_pause_cancel_and_retry_it(nodes: Nodes) -> None:
    fra, ber = nodes
    done = fra.project.spyweb("run", "prices")
    assert "3 prices" in done.stdout
    eventually(lambda: "3 prices" in fra.project.spyweb("logs", "prices").stdout, "its log")
    assert not (fra.project.root / "jobs/prices/hooks.log").exists()
    fra.project.spyweb("pause", "prices")
    fra.until_shown("prices", "paused")
    ber.until_shown("prices", "paused")
    fra.project.spyweb("resume", "prices")
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(fra.project.spyweb, "run", "sleeper", code=1)
        fra.until_shown("sleeper", "running")
        assert fra.project.shown("sleeper").node == "ber"
        (run,) = [run for run in fra.project.runs("sleeper") if run.outcome is None]
        assert fra.daemon.ask(f"/api/runs/{run.id}/cancel", "POST").status == 200
        assert "cancelled" in watching.result().stdout
    fra.project.spyweb("run", "fails", code=1)
    fra.project.spyweb("retry", str(fra.project.ended("fails")[0].id))
    assert {run.outcome for run in fra.project.ended("fails", 2)} == {Outcome.FAILED}
    assert len(ber.project.ask("keys", "audit")) == len(fra.project.ask("keys", "audit")), "one trail for all"


def test_events_of_a_job_elsewhere_come_as_they_happen(nodes: Nodes) -> None:
    fra, ber = nodes
    client = fra.project.daemon_client()
    of_one, of_all = client.events(job="prices", types="log,run"), client.events(types="run")
    assert [next(of_one)[0], next(of_all)[0]] == ["", ""]
    ber.project.result("prices")
    assert next(json.loads(data)["text"] for name, data in of_one if name == "log") == "3 prices"
    ended = next(json.loads(data) for name, data in of_all if name == "run" and b'"ended"' in data)
    assert (ended["job"], ended["outcome"]) == ("prices", "success")


def test_a_node_is_drained_and_resumed_by_another_and_an_incident_says_what_no_node_may_run(nodes: Nodes) -> None:
    fra, ber = nodes
    fra.project.spyweb("nodes", "drain", "ber")
    eventually(lambda: {each["name"]: each["slots"] for each in fra.project.ask("nodes")}["ber"] == 0, "all is given")
    refused = fra.daemon.ask("/api/jobs/prices/trigger", "POST")
    assert (refused.status, refused.json["error"]) == (
        503, "no node runs prices now: `spyweb nodes` shows which are up",
    )  # fmt: skip
    assert "no node is up for jobs of node ber: they do not run" in fra.project.daemon_client().health().warnings
    open_now = eventually(lambda: fra.project.daemon_client().incidents(is_open=True, limit=9), "an incident", 60)
    assert open_now[0].subject == "daemon:node:ber"
    fra.project.spyweb("nodes", "resume", "ber")
    eventually(lambda: fra.daemon.ask("/api/jobs/prices/trigger", "POST").status == 200, "it takes its jobs again")
    ber.daemon.kill()
    eventually(lambda: [each["state"] for each in fra.project.ask("nodes")] == ["dead", "alive"], "declared dead")
    fra.project.spyweb("nodes", "forget", "ber")
    assert [each["name"] for each in fra.project.ask("nodes")] == ["fra"]


def test_a_node_that_hangs_is_waited_for_until_it_is_dead_and_without_a_url_it_is_named(
    tmp_path: Path, postgres: PostgresPlace
) -> None:
    pin(tmp_path, "ber", "prices", "return 3")
    with real_nodes(tmp_path, postgres, reachable=False) as (fra, ber):
        refused = fra.daemon.ask("/api/jobs/prices/trigger", "POST")
        assert (refused.status, "prices is at ber: with [cluster] url there" in refused.json["error"]) == (409, True)
        assert fra.daemon.ask(f"/api/runs/{ber.project.daemon_client().trigger(JobId('prices'))}").status == 200
        ber.daemon.process.send_signal(signal.SIGSTOP)
        eventually(lambda: fra.daemon.ask("/api/jobs/prices/trigger", "POST").status == 503, "declared dead")


def test_keys_and_their_limits_hold_at_each_node(nodes: Nodes) -> None:
    fra, ber = nodes
    runner, limited = [
        ber.project.spyweb("keys", "add", name, "--scope", "run", *options).stdout.strip()
        for name, *options in (("runner",), ("limited", "--job", "fails"))
    ]

    def status(token: str, path: str) -> int:
        return fra.daemon.ask(path, "POST", **{"X-SpyWeb-Key": token}).status

    eventually(lambda: status(limited, "/api/jobs/fails/trigger") == 200, "the last key is known here too")
    for path in ("/api/jobs/prices/trigger", "/api/hooks/prices"):
        assert [status(token, path) for token in (limited, "x")] == [403, 401]
    assert status(runner, "/api/hooks/prices") == 202
    ber.project.spyweb("keys", "revoke", "runner")
    eventually(lambda: status(runner, "/api/jobs/prices/trigger") == 401, "the key is revoked here too")
