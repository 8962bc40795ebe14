"""Several real daemons on one PostgreSQL, each behind a network that can break, and what they left there."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psycopg

from tests.fakes.database_reader import DatabaseReader
from tests.fakes.postgres import PostgresServer
from tests.fakes.postgres_proxy import PostgresProxy, a_proxy
from tests.fakes.project import clean_environment

SCHEMA = "spyweb"
SETTINGS = """
[store]
url = "{url}"
schema = "{schema}"
on_error = "raise"
[cluster]
name = "{name}"
lease = "{lease_ms}ms"
beat = "{beat_ms}ms"
[runs]
keep = 1000000
"""
PATIENCE_S = 60.0
MULTIXACTS = "SELECT next_multixact_id::text::bigint, next_multi_offset::text::bigint FROM pg_control_checkpoint()"


@dataclass
class ClusterNode:
    """A daemon with a project folder and a network of its own; each start of it is another node on record."""

    name: str
    root: Path
    proxy: PostgresProxy
    process: subprocess.Popen[bytes] | None = None
    outputs: int = 0

    def start(self, *flags: str) -> None:
        self.outputs += 1
        with (self.root / f"out.{self.outputs}").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spyweb", "-C", str(self.root), "start", "--port", "0", *flags],
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def stopped(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        assert self.process is not None
        self.send(number)
        code = await asyncio.to_thread(self.process.wait, PATIENCE_S)
        self.process = None
        return code

    def said(self) -> str:
        """Return all that it has written, over all its starts."""
        outputs = [self.root / f"out.{number}" for number in range(1, self.outputs + 1)]
        return "".join(path.read_text(errors="replace") for path in outputs)


@dataclass(frozen=True, slots=True)
class ClusterReader(DatabaseReader):
    """Reads the cluster's tables without any of spyweb's own code."""

    url: str = ""

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with connected(self.url) as connection:
            yield cast("sqlite3.Connection", AsSqlite(connection))


@dataclass(frozen=True)
class AsSqlite:
    connection: psycopg.Connection

    def execute(self, query: str, parameters: Sequence[object] = ()) -> psycopg.Cursor:
        return self.connection.execute(query.replace("?", "%s"), parameters)


@dataclass
class Cluster:
    server: PostgresServer
    root: Path
    lease_ms: int = 3000
    beat_ms: int = 500
    nodes: list[ClusterNode] = field(default_factory=list)

    def job(self, name: str, body: str, settings: str) -> None:
        """Write a job that each later node has."""
        head = "".join(f"-- {line}\n" for line in ("/// job", *settings.splitlines(), "///"))
        path = self.root / "jobs" / f"{name}.lua"
        path.parent.mkdir(exist_ok=True)
        path.write_text(head + body)

    def add(self, name: str, proxy: PostgresProxy, settings: str = "") -> ClusterNode:
        root = self.root / name
        shutil.copytree(self.root / "jobs", root / "jobs")
        filled = SETTINGS.format(url=proxy.url, schema=SCHEMA, name=name, lease_ms=self.lease_ms, beat_ms=self.beat_ms)
        (root / "config.toml").write_text(filled + settings)
        self.nodes.append(ClusterNode(name, root, proxy))
        return self.nodes[-1]

    def ask(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query; tables are those of the cluster."""
        with connected(self.server.url) as connection:
            cursor = connection.execute(query, parameters)
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
            await asyncio.sleep(0.02)

    async def until(self, query: str, *parameters: object, patience_s: float = PATIENCE_S) -> float:
        """Wait until a query gives true; return the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not await asyncio.to_thread(self._is_true, query, *parameters):
            assert loop.time() < began + patience_s, f"it never came to: {query} {parameters}"
            await asyncio.sleep(0.05)  # each try is a connection
        return loop.time() - began

    def _is_true(self, query: str, *parameters: object) -> bool:
        try:
            return bool(self.ask(query, *parameters)[0][0])
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):  # PostgreSQL is away, or nobody has begun
            return False

    def close(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait(PATIENCE_S)


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True, options=f"-c search_path={SCHEMA}") as connection:
        yield connection


@asynccontextmanager
async def a_cluster(cluster: Cluster, names: Sequence[str]) -> AsyncIterator[Cluster]:
    """Make a node of each name, which is not started yet; in the end all are killed."""
    async with AsyncExitStack() as stack:
        for name in names:
            cluster.add(name, await stack.enter_async_context(a_proxy(cluster.server.url)))
        stack.callback(cluster.close)
        yield cluster
