"""Several real daemons on one PostgreSQL: a project folder for each, with the same jobs, and what they left there."""

from __future__ import annotations

import asyncio
import atexit
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import psycopg

from spyweb.daemon.serve import free_port
from spyweb.model import JobId
from tests.fakes.database_reader import DatabaseReader
from tests.fakes.postgres import PostgresPlace, connected
from tests.fakes.postgres_proxy import PostgresProxy, a_proxy
from tests.fakes.project import Daemon, Project, eventually

SETTINGS = """
[store]
url = "{url}"
schema = "{schema}"
on_error = "raise"
[runs]
keep = 1000000
[cluster]
name = "{name}"
lease = "{lease_ms}ms"
beat = "{beat_ms}ms"
"""
URL = 'url = "http://127.0.0.1:{port}"\n'
PATIENCE_S = 60.0
POLL_S = 0.05
MULTIXACTS = "SELECT next_multixact_id::text::bigint, next_multi_offset::text::bigint FROM pg_control_checkpoint()"


@dataclass
class ClusterNode:
    """A daemon with a network of its own, which can break; each start of it is another node on record."""

    name: str
    project: Project
    proxy: PostgresProxy
    daemon: Daemon | None = None
    former: str = ""  # what earlier starts have said

    @property
    def runs(self) -> bool:
        return self.daemon is not None and self.daemon.process.poll() is None

    def start(self) -> None:
        self.former = self.said()
        self.daemon = self.project.launch()

    def send(self, number: signal.Signals) -> None:
        assert self.daemon is not None
        self.daemon.process.send_signal(number)

    async def stopped(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        assert self.daemon is not None
        return await asyncio.to_thread(self.daemon.stop, number)

    def said(self) -> str:
        """Return all that it has written, over all its starts."""
        return self.former + (self.daemon.said() if self.daemon else "")


class Member(NamedTuple):
    """A node that runs."""

    project: Project
    daemon: Daemon

    def until_settled(self) -> None:
        jobs = self.project.daemon_client().jobs
        eventually(lambda: all(job.node for job in jobs()), "a node for each job")

    def until_shown(self, job: str, state: str) -> None:
        eventually(lambda: self.project.shown(job).state == state, f"{job} is {state}")

    def trigger(self, job: str) -> int | None:
        return self.project.daemon_client().trigger(JobId(job))


@dataclass
class Cluster:
    """A schema, and a project for each node that shares it."""

    place: PostgresPlace
    root: Path
    lease_ms: int = 2000
    beat_ms: int = 200
    is_reachable: bool = False  # each knows where the others serve
    is_quick: bool = False
    projects: dict[str, Project] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)  # of their servers
    nodes: list[ClusterNode] = field(default_factory=list)  # behind networks that can break
    session: psycopg.Connection | None = None  # for questions

    def add(self, *names: str, settings: str = "", url: str = "") -> None:
        """Make a project for each name."""
        for name in names:
            filled = SETTINGS.format(
                url=url or self.place.url,
                schema=self.place.schema,
                name=name,
                lease_ms=self.lease_ms,
                beat_ms=self.beat_ms,
            )
            if self.is_reachable:
                self.ports[name] = free_port("127.0.0.1")
                filled += URL.format(port=self.ports[name])
            project = self.projects[name] = Project(self.root / name, is_quick=self.is_quick)
            project.save("config.toml", filled + settings)

    def job(self, name: str, body: str, settings: str = 'every = "never"') -> None:
        """Save a job of each node."""
        for project in self.projects.values():
            project.job(name, body, settings)

    @contextmanager
    def running(self) -> Iterator[list[Member]]:
        """Run all, the first of which becomes the chief."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.member(name)) for name in self.projects]

    @contextmanager
    def member(self, name: str) -> Iterator[Member]:
        """Run one."""
        flags = ("--port", str(self.ports[name])) if self.is_reachable else ()
        with self.projects[name].daemon(*flags) as daemon:
            yield Member(self.projects[name], daemon)

    def ask(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query; tables are those of the cluster."""
        try:
            return self._rows(query, parameters)
        except psycopg.OperationalError:
            if self.session and not self.session.closed:
                raise
            return self._rows(query, parameters)  # the server that was asked before has ended

    def _rows(self, query: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        if self.session is None or self.session.closed:
            self.session = connected(*self.place)
            atexit.register(self.session.close)
        cursor = self.session.execute(query, parameters)
        return cursor.fetchall() if cursor.description else []

    def multixacts(self) -> tuple[int, int]:
        """Return how often several transactions have locked one row so far, and their number."""
        self.ask("CHECKPOINT")
        return self.ask(MULTIXACTS)[0]

    async def id_of(self, node: ClusterNode) -> int:
        """Return the node on record that is the newest start of a daemon, once PostgreSQL answers; 0: none yet."""
        while True:
            with suppress(psycopg.OperationalError):
                rows = await asyncio.to_thread(self.ask, "SELECT max(id) FROM node WHERE name = %s", node.name)
                return rows[0][0] or 0
            await asyncio.sleep(POLL_S)

    async def until(self, query: str, *parameters: object, patience_s: float = PATIENCE_S) -> float:
        """Wait until a query gives true; return the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not await asyncio.to_thread(self._is_true, query, *parameters):
            assert loop.time() < began + patience_s, f"it never came to: {query} {parameters}"
            await asyncio.sleep(POLL_S)
        return loop.time() - began

    def _is_true(self, query: str, *parameters: object) -> bool:
        try:
            return bool(self.ask(query, *parameters)[0][0])
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):  # PostgreSQL is away, or nobody has begun
            return False


@asynccontextmanager
async def a_cluster(cluster: Cluster, names: Sequence[str]) -> AsyncIterator[Cluster]:
    """Make a node of each name, which is not started yet; in the end all are killed."""
    async with AsyncExitStack() as stack:
        for name in names:
            proxy = await stack.enter_async_context(a_proxy(cluster.place.url))
            cluster.add(name, url=proxy.url)
            cluster.nodes.append(ClusterNode(name, cluster.projects[name], proxy))
        try:
            yield cluster
        finally:
            for node in cluster.nodes:
                if node.daemon is not None:
                    node.daemon.kill()


@dataclass(frozen=True, slots=True)
class ClusterReader(DatabaseReader):
    """Reads the cluster's tables without any of spyweb's own code."""

    place: PostgresPlace

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with connected(*self.place) as connection:
            yield cast("sqlite3.Connection", AsSqlite(connection))


@dataclass(frozen=True)
class AsSqlite:
    connection: psycopg.Connection

    def execute(self, query: str, parameters: Sequence[object] = ()) -> psycopg.Cursor:
        return self.connection.execute(query.replace("?", "%s"), parameters)
