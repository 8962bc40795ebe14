"""Several daemons on one PostgreSQL: they share the jobs, and take over from each other."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from spyweb.ownership import slot_of
from tests.fakes.postgres import PostgresPlace, PostgresServer, short_folder
from tests.fakes.postgres_proxy import a_proxy
from tests.fakes.project import Daemon, Project, eventually
from tests.fakes.real_nodes import settings_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

JOBS = [f"job{number}" for number in range(12)]
TWICE = "SELECT job, due_ms, count(*) FROM run WHERE due_ms IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1"
DUE = "SELECT job, due_ms, coalesce(last_due_ms, due_ms) FROM run WHERE due_ms IS NOT NULL ORDER BY 1, 2"


class SharedPlace:
    """A schema, and a project for each node that shares it."""

    def __init__(self, folder: Path, place: PostgresPlace) -> None:
        self.folder = folder
        self._place = place

    def project(self, name: str) -> Project:
        project = Project(self.folder / name)
        project.launcher = ("env",)  # a process of its own, which can become another program
        project.save("config.toml", settings_of(name, self._place, lease="2s"))
        for job in JOBS:
            project.job(job, "return 1", 'every = "1s"')
        return project

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._place.url, options=f"-c search_path={self._place.schema}") as connection:
            return connection.execute(statement).fetchall()

    def owners(self) -> dict[str, int]:
        """Return how many slots the living nodes have, by name."""
        return dict(self.ask("SELECT name, count(*) FROM slot JOIN node ON owner = node.id GROUP BY 1"))

    def states(self) -> list[tuple[str, str]]:
        """Return the nodes, from the first to the last that joined, and what became of them."""
        return self.ask("SELECT name, state::text FROM node JOIN lane ON node = id ORDER BY id")

    def until_owned(self, *shares: tuple[str, int]) -> None:
        eventually(lambda: self.owners() == dict(shares), f"{shares}, instead of {self.owners()}")

    def until_runs(self, further: int = len(JOBS)) -> None:
        """Wait for so many further runs."""
        ended = "SELECT count(*) FROM run WHERE state = 'ended'"
        goal = self.ask(ended)[0][0] + further
        eventually(lambda: self.ask(ended)[0][0] >= goal, "further runs")

    def check(self) -> None:
        """No due time has run twice, and none is missing on record."""
        assert self.ask(TWICE) == []
        for (job, _, last), (after, first, _) in pairwise(self.ask(DUE)):
            assert job != after or first - last == 1_000, (job, last, first)


@pytest.fixture
def shared(tmp_path: Path, postgres: PostgresPlace) -> SharedPlace:
    return SharedPlace(tmp_path, postgres)


@contextmanager
def two_nodes(shared: SharedPlace) -> Iterator[Sequence[Daemon]]:
    with shared.project("fra").daemon() as fra:
        shared.until_owned(("fra", 256))
        with shared.project("ber").daemon() as ber:
            shared.until_owned(("fra", 128), ("ber", 128))
            shared.until_runs()
            yield fra, ber


def test_a_node_that_joins_gets_its_share_and_gives_it_back_when_it_is_stopped(shared: SharedPlace) -> None:
    with two_nodes(shared) as (_, ber):
        assert ber.stop() == 0
        shared.until_owned(("fra", 256))
        assert shared.states() == [("fra", "a"), ("ber", "l")]
        shared.until_runs()
    shared.check()


def test_the_jobs_of_a_node_that_is_killed_go_on_on_another_and_its_runs_are_lost(shared: SharedPlace) -> None:
    with two_nodes(shared) as (fra, ber):
        of_ber = {
            number
            for (number,) in shared.ask("SELECT slot.id FROM slot JOIN node ON owner = node.id WHERE name = 'ber'")
        }
        job = next(name for name in (f"long{number}" for number in count()) if slot_of(name).number in of_ber)
        for name in ("fra", "ber"):
            Project(shared.folder / name).job(job, "sleep(600000)", 'every = "1h"')
        outcome = f"SELECT outcome, reason FROM run WHERE job = '{job}' AND started_ms IS NOT NULL"
        eventually(lambda: shared.ask(outcome) == [(None, "")], "a run under way")
        ber.kill()
        shared.until_owned(("fra", 256))
        assert shared.states() == [("fra", "a"), ("ber", "x")]
        assert fra.has_said("a node is dead")
        eventually(lambda: shared.ask(outcome) == [("lost", "the node ber died")], "a lost run")
        shared.until_runs()
    shared.check()


def test_a_job_goes_to_the_node_that_it_asks_for_and_to_any_once_it_asks_no_more_for_one_that_is_gone(
    shared: SharedPlace,
) -> None:
    job, lies_in = JOBS[0], f"SELECT pool FROM cursor WHERE job = '{JOBS[0]}'"

    def ask_for(settings: str, pool: str) -> None:
        for name in ("fra", "ber"):
            Project(shared.folder / name).job(job, "return 1", f'every = "1s"{settings}')
        eventually(lambda: shared.ask(lies_in) == [(pool,)], f"{job} in the pool {pool!r}")

    with two_nodes(shared) as (_, ber):
        ask_for('\nnode = "ber"', "node:ber")
        ber.kill()
        shared.until_owned(("fra", 256), ("ber", 1))  # that of the pool for it, which no other may take
        ask_for("", "")
        shared.until_runs(4 * len(JOBS))
        last = f"SELECT count(*) FROM run WHERE job = '{job}' AND due_ms > (SELECT max(due_ms) FROM run) - 3000"
        eventually(lambda: shared.ask(last)[0][0] > 0, "a run of the job on the node that is left")
    assert shared.ask(TWICE) == []


def test_a_node_that_stood_still_for_too_long_writes_nothing_any_more_and_joins_anew_in_the_same_process(
    shared: SharedPlace,
) -> None:
    with two_nodes(shared) as (fra, _):
        fra.process.send_signal(signal.SIGSTOP)
        shared.until_owned(("ber", 256))
        fra.process.send_signal(signal.SIGCONT)
        eventually(lambda: fra.said().count('"started"') == 2, "a second start")
        assert fra.has_said("this node is over, and joins anew")
        assert fra.process.poll() is None
        shared.until_owned(("ber", 128), ("fra", 128))
        assert shared.states() == [("fra", "x"), ("ber", "a"), ("fra", "a")]
        shared.until_runs()
    shared.check()


def test_a_node_that_is_over_when_it_is_stopped_ends(shared: SharedPlace) -> None:
    with two_nodes(shared) as (fra, _):
        fra.process.send_signal(signal.SIGSTOP)
        shared.until_owned(("ber", 256))
        fra.process.send_signal(signal.SIGTERM)
        fra.process.send_signal(signal.SIGCONT)
        assert fra.process.wait() == 0
        assert not fra.has_said("joins anew")
        assert shared.states() == [("fra", "x"), ("ber", "a")]


async def test_a_node_whose_network_is_cut_ends_its_runs_and_joins_anew_when_it_is_back(
    tmp_path: Path, postgres: PostgresPlace
) -> None:
    async with a_proxy(postgres.url) as proxy:
        near, far = SharedPlace(tmp_path, postgres), SharedPlace(tmp_path, postgres._replace(url=proxy.url))
        with ExitStack() as daemons:

            def start() -> Daemon:
                fra = daemons.enter_context(far.project("fra").daemon())
                daemons.enter_context(near.project("ber").daemon())
                near.until_owned(("fra", 128), ("ber", 128))
                return fra

            def go_on() -> None:
                eventually(lambda: fra.said().count('"started"') == 2, "a second start")
                near.until_owned(("fra", 128), ("ber", 128))
                near.until_runs()

            fra = await asyncio.to_thread(start)
            proxy.hold_requests()
            await asyncio.to_thread(near.until_owned, ("ber", 256))
            await asyncio.to_thread(near.until_runs)
            proxy.release()
            await asyncio.to_thread(go_on)
        near.check()


def test_without_postgresql_a_first_start_fails_in_one_line_and_a_node_that_joins_anew_waits_for_it(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    project = SharedPlace(tmp_path, PostgresPlace(own_postgres.url, "spyweb")).project("fra")
    own_postgres.stop()
    refused = project.spyweb("start", code=2)
    assert [refused.stdout, refused.stderr.count("\n")] == ["", 1]
    assert "can't be reached" in refused.stderr
    project.environment["SPYWEB_JOINS_ANEW"] = "1"  # as the process before it has said
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(project.start)
        output = project.root / "daemon.out"
        eventually(lambda: output.exists() and "waiting for the database" in output.read_text(), "waiting")
        own_postgres.start()
        started = starting.result()
    started.kill()
    assert started.said().count("waiting for the database") == 1


def test_after_a_failover_a_node_joins_anew_and_goes_on(tmp_path: Path, own_postgres: PostgresServer) -> None:
    standby = PostgresServer(short_folder())
    try:
        standby.make(standby_of=own_postgres)
        standby.start()
        url = f"postgresql://spyweb@/postgres?host={own_postgres.folder},{standby.folder}"
        shared = SharedPlace(tmp_path, PostgresPlace(url, "spyweb"))
        with shared.project("fra").daemon() as fra:
            shared.until_runs()
            own_postgres.kill()
            standby.promote()
            eventually(lambda: fra.said().count('"started"') == 2, "a second start")
            assert fra.has_said("this node is over, and joins anew")
            shared.until_runs()
            assert shared.states() == [("fra", "x"), ("fra", "a")]
        shared.check()
    finally:
        standby.close()
