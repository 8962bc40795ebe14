"""Several daemons on one PostgreSQL: they share the jobs, and take over from each other."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from spyweb.model import JobId
from spyweb.ownership import slot_of
from tests.fakes.cluster import Cluster
from tests.fakes.postgres import PostgresPlace, PostgresServer, short_folder
from tests.fakes.postgres_proxy import a_proxy
from tests.fakes.project import Daemon, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

JOBS = [f"job{number}" for number in range(12)]
LONG = [f"long{number}" for number in range(9)]
TWICE = "SELECT job, due_ms, count(*) FROM run WHERE due_ms IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1"
DUE = "SELECT job, due_ms, coalesce(last_due_ms, due_ms) FROM run WHERE due_ms IS NOT NULL ORDER BY 1, 2"
OWNERS = "SELECT name, count(*) FROM slot JOIN node ON owner = node.id GROUP BY 1"
ENDS = "SELECT job, min(ended_ms), max(ended_ms), count(*) FROM run WHERE outcome = 'success' GROUP BY 1"
ENDED = "SELECT count(*) FROM run WHERE state = 'ended'"


class Sharing(Cluster):
    """A cluster whose nodes share jobs that are due each second."""

    def with_jobs(self, *names: str, url: str = "") -> Sharing:
        """Add nodes that have them."""
        self.add(*names, url=url)
        for job in JOBS:
            self.job(job, "return 1", 'every = "1s"')
        return self

    def owners(self) -> dict[str, int]:
        """Return how many slots the living nodes have, by name."""
        return dict(self.ask(OWNERS))

    def states(self) -> list[tuple[str, ...]]:
        """Return the nodes, from the first to the last that joined, and what became of them."""
        return self.ask("SELECT name, state::text FROM node JOIN lane ON node = id ORDER BY id")

    def until_owned(self, *shares: tuple[str, int]) -> None:
        eventually(lambda: self.owners() == dict(shares), f"{shares}, instead of {self.owners()}")

    def until_runs(self, further: int = len(JOBS)) -> None:
        """Wait for so many further runs."""
        goal = self.ask(ENDED)[0][0] + further
        eventually(lambda: self.ask(ENDED)[0][0] >= goal, "further runs")

    def check(self) -> None:
        """No due time has run twice, and none is missing on record."""
        assert self.ask(TWICE) == []
        for (job, _, last), (after, first, _) in pairwise(self.ask(DUE)):
            assert job != after or first - last == 1_000, (job, last, first)

    def check_uptime(self) -> None:
        """Each job was up from its first end on, at whatever node; and each end counts once."""
        views = cast("dict[str, Any]", {view["job"]: view for view in self.projects["fra"].ask("uptime")})
        for job, first, last, count in self.ask(ENDS):
            span = views[job]["spans"]["24h"]
            assert (span["ok"], span["failed"], span["down_ms"]) == (count, 0, 0), job
            assert last - first <= span["up_ms"] <= views[job]["until_ms"] - first, job

    @contextmanager
    def two_nodes(self) -> Iterator[Sequence[Daemon]]:
        with self.member("fra") as fra:
            self.until_owned(("fra", 256))
            with self.member("ber") as ber:
                self.until_owned(("fra", 128), ("ber", 128))
                self.until_runs()
                yield fra.daemon, ber.daemon


@pytest.fixture
def shared(tmp_path: Path, postgres: PostgresPlace) -> Sharing:
    return Sharing(postgres, tmp_path).with_jobs("fra", "ber")


def test_a_node_that_joins_gets_its_share_and_gives_it_back_when_it_is_drained_and_stopped(shared: Sharing) -> None:
    with shared.two_nodes() as (_, ber):
        shared.projects["fra"].spyweb("nodes", "drain", "ber")
        shared.until_owned(("fra", 256))
        assert ber.stop() == 0
        assert shared.states() == [("fra", "a"), ("ber", "l")]
        shared.until_runs()
    shared.check()
    shared.check_uptime()


def test_the_jobs_of_a_node_that_is_killed_go_on_on_another_and_its_runs_are_lost(shared: Sharing) -> None:
    for job in LONG:
        shared.job(job, "sleep(600000)")
    with shared.two_nodes() as (fra, ber):
        of_ber = dict(shared.ask("SELECT slot.id, name FROM slot JOIN node ON owner = node.id WHERE name = 'ber'"))
        job = next(name for name in LONG if slot_of(name).number in of_ber)
        shared.projects["ber"].daemon_client().trigger(JobId(job))
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
    shared: Sharing,
) -> None:
    job, lies_in = JOBS[0], f"SELECT pool FROM cursor WHERE job = '{JOBS[0]}'"

    def ask_for(settings: str, pool: str) -> None:
        shared.job(job, "return 1", f'every = "1s"{settings}')
        eventually(lambda: shared.ask(lies_in) == [(pool,)], f"{job} in the pool {pool!r}")

    with shared.two_nodes() as (_, ber):
        ask_for('\nnode = "ber"', "node:ber")
        shared.until_owned(("fra", 128), ("ber", 129))
        ber.kill()
        shared.until_owned(("fra", 256), ("ber", 1))  # that of the pool for it, which no other may take
        ended = f"{ENDED} AND job = '{job}'"
        ((before,),) = shared.ask(ended)
        ask_for("", "")
        eventually(lambda: shared.ask(ended)[0][0] > before, "a run of the job on the node that is left")
    assert shared.ask(TWICE) == []


def test_a_node_that_stood_still_for_too_long_joins_anew_in_the_same_process_unless_it_is_stopped(
    shared: Sharing,
) -> None:
    with shared.two_nodes() as (fra, _):
        fra.process.send_signal(signal.SIGSTOP)
        shared.until_owned(("ber", 256))
        fra.process.send_signal(signal.SIGCONT)
        eventually(lambda: fra.said().count('"started"') == 2, "a second start")
        assert fra.has_said("this node is over, and joins anew")
        assert fra.process.poll() is None
        shared.until_owned(("ber", 128), ("fra", 128))
        assert shared.states() == [("fra", "x"), ("ber", "a"), ("fra", "a")]
        shared.until_runs()

        fra.process.send_signal(signal.SIGSTOP)
        shared.until_owned(("ber", 256))
        fra.process.send_signal(signal.SIGTERM)
        fra.process.send_signal(signal.SIGCONT)
        assert fra.process.wait() == 0
        assert fra.said().count("joins anew") == 1
        assert shared.states() == [("fra", "x"), ("ber", "a"), ("fra", "x")]
    shared.check()


async def test_a_node_whose_network_is_cut_ends_its_runs_and_joins_anew_when_it_is_back(
    tmp_path: Path, postgres: PostgresPlace
) -> None:
    async with a_proxy(postgres.url) as proxy:
        shared = Sharing(postgres, tmp_path).with_jobs("fra", url=proxy.url).with_jobs("ber")
        with ExitStack() as stack:
            fra, _ = await asyncio.to_thread(stack.enter_context, shared.two_nodes())
            proxy.hold_requests()
            await asyncio.to_thread(shared.until_owned, ("ber", 256))
            await asyncio.to_thread(shared.until_runs)
            proxy.release()
            await asyncio.to_thread(eventually, lambda: fra.said().count('"started"') == 2, "a second start")
            await asyncio.to_thread(shared.until_owned, ("fra", 128), ("ber", 128))
            await asyncio.to_thread(shared.until_runs)
        shared.check()


def test_without_postgresql_a_first_start_fails_in_one_line_and_after_a_failover_a_node_joins_anew_and_goes_on(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    standby = PostgresServer(short_folder())
    try:
        standby.make(standby_of=own_postgres)
        own_postgres.stop()
        url = f"postgresql://spyweb@/postgres?host={own_postgres.folder},{standby.folder}"
        shared = Sharing(PostgresPlace(url, "spyweb"), tmp_path).with_jobs("fra")
        project = shared.projects["fra"]
        refused = project.spyweb("start", code=2)
        assert [refused.stdout, refused.stderr.count("\n")] == ["", 1]
        assert "can't be reached" in refused.stderr

        project.environment["SPYWEB_JOINS_ANEW"] = "1"  # as the process before it has said
        fra = project.launch()
        try:
            eventually(lambda: fra.has_said("waiting for the database"), "waiting")
            own_postgres.start()
            standby.start()
            eventually(lambda: fra.has_said('"started"'), "a start")
            shared.until_runs()
            own_postgres.kill()
            standby.promote()
            eventually(lambda: fra.said().count('"started"') == 2, "a second start")
            assert fra.said().count("waiting for the database") == 1
            assert fra.has_said("this node is over, and joins anew")
            shared.until_runs()
            assert shared.states() == [("fra", "x"), ("fra", "a")]
        finally:
            fra.kill()
        shared.check()
    finally:
        standby.close()
