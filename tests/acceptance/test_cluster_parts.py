"""What is done once for all nodes of a cluster, and how one node hears of what another has committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.cluster import Cluster, Member
from tests.fakes.hook import Hook, open_hook
from tests.fakes.postgres import PostgresPlace
from tests.fakes.project import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SETTINGS = """
[channels.ops]
webhook = "{hook}"
[alerts]
to = ["ops"]
after_failures = 1
"""
NEVER = 'every = "never"\nnode = "{}"'


@pytest.fixture
def hook() -> Iterator[Hook]:
    with open_hook() as hook:
        yield hook


def has_run(member: Member, job: str) -> bool:
    return any(run.outcome for run in member.project.runs(job))


def test_what_one_node_commits_another_hears_at_once(tmp_path: Path, postgres: PostgresPlace) -> None:
    cluster = Cluster(postgres, tmp_path, lease_ms=3_600_000, beat_ms=900_000)  # what is heard is heard by the bell
    cluster.add("fra", "ber")
    cluster.job("writer", 'state.set({ scope = "orders", key = "x", value = os.time() })', NEVER.format("fra"))
    cluster.job("listener", "return 1", NEVER.format("ber") + '\non = { scope = "orders" }')
    cluster.job("follower", "return 1", NEVER.format("ber") + '\nafter = "writer"')
    cluster.job("holder", 'state.lock("door", 60)\nsleep(2000)', NEVER.format("fra"))
    cluster.job("waiter", 'return state.lock("door", 60)', NEVER.format("ber"))
    with cluster.running() as (fra, ber):
        fra.trigger("writer")
        eventually(lambda: has_run(ber, "listener") and has_run(ber, "follower"), "the runs on the other node")

        fra.trigger("holder")
        eventually(lambda: "door" in fra.project.spyweb("state", "locks").stdout, "a lock")
        assert ber.project.result("waiter") is True, "long before the lease of 60 s would be over"

        fra.project.spyweb("keys", "add", "laptop")
        token = re.findall(r"spyweb_\w+", fra.project.spyweb("keys", "add", "phone").stdout)[0]
        bearer = {"Authorization": f"Bearer {token}"}
        eventually(lambda: ber.daemon.ask("/api/jobs", **bearer).status == 200, "a key that is known")
        eventually(lambda: ber.daemon.ask("/api/jobs").status == 401, "that a key is needed")
        fra.project.spyweb("keys", "revoke", "phone")
        eventually(lambda: ber.daemon.ask("/api/jobs", **bearer).status == 401, "a key that is revoked")

        fra.project.spyweb("maintenance", "begin", "1h", "--job", "writer")
        eventually(lambda: "writer" in ber.project.spyweb("maintenance", "list").stdout, "a window")


def test_an_incident_of_any_node_is_told_once_also_by_the_next_chief(
    tmp_path: Path, postgres: PostgresPlace, hook: Hook
) -> None:
    cluster = Cluster(postgres, tmp_path, is_quick=True)
    cluster.add("fra", "ber", settings=SETTINGS.format(hook=hook.url))
    for job in ("broken", "later"):
        cluster.job(job, 'error("no")', NEVER.format("ber"))

    def told() -> list[tuple[str, str]]:  # of jobs: a busy machine may have signs of its own
        items = [item for body in hook.messages for item in json.loads(body)["items"]]
        return [(item["subject"], item["kind"]) for item in items if item["subject"].startswith("job:")]

    with cluster.running() as (fra, ber):
        ber.trigger("broken")
        eventually(lambda: told() == [("job:broken", "opened")], "a message")
        (found,) = fra.project.daemon_client().incidents(is_open=True, limit=10)
        fra.project.spyweb("alerts", "ack", str(found.id))
        (found,) = ber.project.daemon_client().incidents(is_open=True, limit=10)
        assert found.acked_ms is not None

        fra.daemon.kill()
        ber.trigger("later")
        eventually(lambda: told() == [("job:broken", "opened"), ("job:later", "opened")], "a message of the new chief")
