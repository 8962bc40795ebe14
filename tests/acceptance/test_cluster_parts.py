"""What is done once for all nodes of a cluster, and how one node hears of what another has committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from spyweb.model import JobId
from tests.fakes.hook import Hook, open_hook
from tests.fakes.postgres import PostgresPlace
from tests.fakes.project import Daemon, Project, eventually
from tests.fakes.real_nodes import settings_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SETTINGS = """
[channels.ops]
webhook = "{hook}"
[alerts]
to = ["ops"]
after_failures = 1
"""
RARELY, OFTEN = ("1h", "15m"), ("2s", "200ms")  # beats: with the first, what is heard is heard by the bell


class Member(NamedTuple):
    project: Project
    daemon: Daemon

    def has_run(self, job: str) -> bool:
        return any(run.outcome for run in self.project.runs(job))

    def start(self, job: str) -> None:
        self.project.daemon_client().trigger(JobId(job))


@pytest.fixture
def hook() -> Iterator[Hook]:
    with open_hook() as hook:
        yield hook


class Place:
    """Where two nodes share a database; each has the same jobs."""

    def __init__(self, folder: Path, postgres: PostgresPlace, hook: Hook) -> None:
        self.projects = {name: Project(folder / name) for name in ("fra", "ber")}
        self._postgres, self._alerts = postgres, SETTINGS.format(hook=hook.url)

    def job(self, name: str, body: str, settings: str) -> None:
        for project in self.projects.values():
            project.job(name, body, settings)

    @contextmanager
    def nodes(self, pace: tuple[str, str]) -> Iterator[tuple[Member, Member]]:
        """Run both, the one that is named first being the chief."""
        for name, project in self.projects.items():
            project.save("config.toml", settings_of(name, self._postgres, *pace) + self._alerts)
        fra, ber = self.projects.values()
        with fra.daemon() as first, ber.daemon() as second:
            yield Member(fra, first), Member(ber, second)


@pytest.fixture
def place(tmp_path: Path, postgres: PostgresPlace, hook: Hook) -> Place:
    return Place(tmp_path, postgres, hook)


def test_what_one_node_commits_another_hears_at_once(place: Place) -> None:
    never = 'every = "never"\nnode = "{}"'
    place.job("writer", 'state.set({ scope = "orders", key = "x", value = os.time() })', never.format("fra"))
    place.job("listener", "return 1", 'node = "ber"\non = { scope = "orders" }\nevery = "never"')
    place.job("follower", "return 1", 'node = "ber"\nafter = "writer"\nevery = "never"')
    place.job("holder", 'state.lock("door", 60)\nsleep(2000)', never.format("fra"))
    place.job("waiter", 'return state.lock("door", 60)', never.format("ber"))
    with place.nodes(RARELY) as (fra, ber):
        fra.start("writer")
        eventually(lambda: ber.has_run("listener") and ber.has_run("follower"), "the runs on the other node")

        fra.start("holder")
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


def test_an_incident_of_any_node_is_told_once_also_by_the_next_chief(place: Place, hook: Hook) -> None:
    place.job("broken", 'error("no")', 'every = "never"\nnode = "ber"')
    place.job("later", 'error("no")', 'every = "never"\nnode = "ber"')

    def told() -> list[tuple[str, str]]:
        items = [item for body in hook.messages for item in json.loads(body)["items"]]
        return [(item["subject"], item["kind"]) for item in items]

    with place.nodes(OFTEN) as (fra, ber):
        ber.start("broken")
        eventually(lambda: told() == [("job:broken", "opened")], "a message")
        (found,) = fra.project.daemon_client().incidents(is_open=True, limit=10)
        fra.project.spyweb("alerts", "ack", str(found.id))
        (found,) = ber.project.daemon_client().incidents(is_open=True, limit=10)
        assert found.acked_ms is not None

        fra.daemon.kill()
        ber.start("later")
        eventually(lambda: told() == [("job:broken", "opened"), ("job:later", "opened")], "a message of the new chief")
