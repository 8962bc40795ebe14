"""Two real daemons on one PostgreSQL, fra and ber, that reach each other's servers; a job is pinned to one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from spyweb.daemon.serve import free_port
from tests.fakes.postgres import PostgresPlace
from tests.fakes.project import Daemon, Project, eventually

NAMES = ("fra", "ber")
SETTINGS = """
[store]
url = "{url}"
schema = "{schema}"
[cluster]
name = "{name}"
lease = "{lease}"
beat = "{beat}"
"""


class RealNode(NamedTuple):
    project: Project
    daemon: Daemon

    def until_shown(self, job: str, state: str) -> None:
        eventually(lambda: self.project.shown(job).state == state, f"{job} is {state}")


def pin(folder: Path, node: str, job: str, body: str, settings: str = 'every = "never"') -> None:
    """Save a job, on each node, that one of them runs."""
    for name in NAMES:
        Project(folder / name).job(job, body, f'{settings}\nnode = "{node}"')


def settings_of(name: str, place: PostgresPlace, lease: str = "3s", beat: str = "200ms") -> str:
    return SETTINGS.format(url=place.url, schema=place.schema, name=name, lease=lease, beat=beat)


@contextmanager
def real_nodes(folder: Path, place: PostgresPlace, *, reachable: bool = True) -> Iterator[tuple[RealNode, RealNode]]:
    """Start both, whose jobs are saved already; with `reachable` each knows where to reach the other."""
    nodes = []
    for name in NAMES:
        project, port = Project(folder / name), free_port("127.0.0.1")
        project.save("config.toml", settings_of(name, place) + f'url = "http://127.0.0.1:{port}"\n' * reachable)
        nodes.append(RealNode(project, project.start("--port", str(port))))
    try:
        for node in nodes:
            jobs = node.project.daemon_client().jobs
            eventually(lambda jobs=jobs: all(job.node for job in jobs()), "each job has a node")  # type: ignore[misc]
        yield nodes[0], nodes[1]
    finally:
        for node in nodes:
            node.daemon.kill()
