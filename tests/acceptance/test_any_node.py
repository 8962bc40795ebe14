"""Two real daemons on one PostgreSQL: whichever is asked answers for all."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from spyweb.model import Outcome
from tests.fakes.cluster import Cluster, Member
from tests.fakes.postgres import PostgresPlace, fresh_schema
from tests.fakes.project import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@contextmanager
def two_nodes(folder: Path, place: PostgresPlace, *, is_reachable: bool) -> Iterator[list[Member]]:
    """Run fra, which is asked, and ber, which runs the jobs."""
    cluster = Cluster(place, folder, is_reachable=is_reachable, is_quick=True)
    cluster.add("fra", "ber")
    cluster.job("prices", 'log("3 prices")\nreturn 3', 'every = "never"\nnode = "ber"\nhook = {}')
    cluster.job("sleeper", 'log("asleep")\nsleep(60000)', 'every = "never"\nnode = "ber"')
    cluster.job("fails", 'error("no")', 'every = "never"\nnode = "ber"')
    with cluster.running() as both:
        for member in both:
            member.until_settled()
        yield both


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    with fresh_schema() as place, two_nodes(tmp_path_factory.mktemp("nodes"), place, is_reachable=True) as both:
        yield both


def test_commands_at_another_node_run_a_job_show_its_log_pause_cancel_and_retry_it(nodes: list[Member]) -> None:
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
    ended = fra.project.ended("fails", 2)
    assert {run.outcome for run in ended} == {Outcome.FAILED}
    assert f"its latest run ({ended[0].id}) failed" in fra.project.spyweb("logs", "fails").stderr
    assert len(ber.project.ask("keys", "audit")) == len(fra.project.ask("keys", "audit")), "one trail for all"


def test_events_of_a_job_elsewhere_come_as_they_happen(nodes: list[Member]) -> None:
    fra, ber = nodes
    client = fra.project.daemon_client()
    of_one, of_all = client.events(job="prices", types="log,run"), client.events(types="run")
    assert [next(of_one)[0], next(of_all)[0]] == ["", ""]
    ber.project.result("prices")
    assert next(json.loads(data)["text"] for name, data in of_one if name == "log") == "3 prices"
    runs = (json.loads(data) for name, data in of_all if name == "run" and b'"ended"' in data)
    assert next(run["outcome"] for run in runs if run["job"] == "prices") == "success"


def test_keys_and_their_limits_hold_at_each_node(nodes: list[Member]) -> None:
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
    ber.project.spyweb("keys", "revoke", "limited")


def test_a_node_is_drained_and_resumed_by_another_and_waited_for_where_it_hangs_until_it_is_dead(
    tmp_path: Path, postgres: PostgresPlace
) -> None:
    """An incident says what no node may run; where a node says no url of its own, an answer names it."""
    with two_nodes(tmp_path, postgres, is_reachable=False) as (fra, ber):
        client = fra.project.daemon_client()

        def trigger() -> tuple[int, str]:
            answer = fra.daemon.ask("/api/jobs/prices/trigger", "POST")
            return answer.status, answer.json["error"]

        at_ber = (409, "prices is at ber: with [cluster] url there, other nodes ask it")
        in_none = (503, "no node runs prices now: `spyweb nodes` shows which are up")
        assert trigger() == at_ber
        assert fra.daemon.ask(f"/api/runs/{ber.trigger('prices')}").status == 200
        fra.project.spyweb("nodes", "drain", "ber")
        eventually(lambda: {node.name: node.slots for node in client.nodes()}["ber"] == 0, "all is given")
        assert trigger() == in_none
        assert "no node is up for jobs of node ber: they do not run" in client.health().warnings
        open_now = eventually(lambda: client.incidents(is_open=True, limit=9), "an incident")
        assert open_now[0].subject == "daemon:node:ber"
        fra.project.spyweb("nodes", "resume", "ber")
        eventually(lambda: trigger() == at_ber, "it takes its jobs again")
        ber.daemon.process.send_signal(signal.SIGSTOP)
        eventually(lambda: trigger() == in_none, "declared dead")
        assert [node.state for node in client.nodes()] == ["dead", "alive"]
        fra.project.spyweb("nodes", "forget", "ber")
        assert [node.name for node in client.nodes()] == ["fra"]
