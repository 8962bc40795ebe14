"""The nodes of a cluster on record in PostgreSQL: each incarnation, its beats and its slots.

What the simulation has in the place of PostgreSQL keeps the same promises, as far as it has them: see `any_cluster`.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, cast

import psycopg
import pytest
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.errors import Refused, StoreError, StoreFenced
from spyweb.model import Cursor, JobId, Outcome, RunState, Trigger
from spyweb.ownership import EVERY_NODE, SLOTS, Slot
from spyweb.store.model.nodes import Node, NodeState
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.store.postgres.nodes import Nodes
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.store import Store
from tests.fakes.postgres import PostgresPlace
from tests.fakes.simulation.database import Link, SimDatabase, open_simulated
from tests.fakes.simulation.virtual_time import Machine, MachineClock
from tests.fakes.stores import put

LEASE_MS = 60_000  # far longer than a test


class Cluster:
    """Nodes of one schema, whose time passes as the test says."""

    def __init__(self, place: PostgresPlace, stack: AsyncExitStack) -> None:
        self._place = place
        self.url, self.schema = place
        self._stack = stack
        self.stores: list[Store] = []

    async def open(self) -> Nodes:
        server = PgServer(url=self._place.url, schema=self._place.schema, lease_s=4)
        store = await open_postgres(server, clock=RealClock())
        self._stack.push_async_callback(store.close)
        self.stores.append(store)
        assert store.nodes
        return store.nodes

    async def join(self, name: str, **given: Any) -> Nodes:
        nodes = await self.open()
        await nodes.join(node(name, **given), place=name.encode())
        return nodes

    def run(self, statement: str, *values: object) -> None:
        with psycopg.connect(self._place.url, autocommit=True) as connection:
            connection.execute(f'SET search_path = "{self._place.schema}"')
            connection.execute(statement, values)

    def let_pass(self, of: Nodes, seconds: float) -> None:
        """Put a node's last beat so much earlier."""
        self.run("UPDATE heart SET beat = beat - %s * interval '1 s' WHERE node = %s", seconds, of.me)

    @asynccontextmanager
    async def writing(self, of: Nodes) -> AsyncIterator[None]:
        """Have a transaction of a node under way."""
        with psycopg.connect(self.url) as connection:
            connection.execute(f'SELECT 1 FROM "{self.schema}".lane WHERE node = %s FOR UPDATE', [of.me])
            yield


class AtOnce(random.Random):
    def choice(self, among: Sequence[Any]) -> Any:  # type: ignore[override]
        return among[0]


class SimulatedCluster(Cluster):
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack, self.stores = stack, []
        self._database = SimDatabase(AtOnce(), check=lambda _node: None)

    async def join(self, name: str, **given: Any) -> Nodes:
        me = self._database.add(node(name, **given))
        machine = Machine(AtOnce(), offset_ms=0)
        link = Link(self._database, machine, MachineClock(machine), me)
        store, nodes = open_simulated(link, LEASE_MS / 1000, over=lambda: None)
        self.stores.append(store)
        return cast("Nodes", nodes)

    def let_pass(self, of: Nodes, seconds: float) -> None:
        lane = self._database.lanes[of.me]
        lane.node = replace(lane.node, beat_ms=lane.node.beat_ms - round(seconds * 1000))

    @asynccontextmanager
    async def writing(self, of: Nodes) -> AsyncIterator[None]:
        async with self._database.lanes[of.me].lock:
            yield


def node(name: str, **given: Any) -> Node:
    values = {"lease_ms": LEASE_MS} | given
    return Node(name=name, **values)


@pytest.fixture
async def cluster(postgres: PostgresPlace) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        yield Cluster(postgres, stack)


@pytest.fixture(params=["postgres", "simulation"])
def place(request: pytest.FixtureRequest) -> PostgresPlace | None:
    return request.getfixturevalue("postgres") if request.param == "postgres" else None


@pytest.fixture
async def any_cluster(place: PostgresPlace | None) -> AsyncIterator[Cluster]:
    """Return the real one, then the simulation's."""
    async with AsyncExitStack() as stack:
        yield Cluster(place, stack) if place else SimulatedCluster(stack)


def slots(*numbers: int) -> list[Slot]:
    return [Slot(EVERY_NODE, number) for number in numbers]


async def test_a_node_that_joins_is_on_record_as_it_is_and_sees_itself_and_all_slots_without_owners(
    cluster: Cluster,
) -> None:
    nodes = await cluster.join("fra", url="http://fra:7979", version="1.2", labels=("gpu", "eu"), is_standby=True)
    beat = await nodes.beat(b"digest")
    (found,) = (await nodes.beat(b"digest", -700)).living
    assert (found.id, found.name, found.url, found.version) == (nodes.me, "fra", "http://fra:7979", "1.2")
    assert (found.labels, found.is_standby, found.only_labels) == (("gpu", "eu"), True, False)
    assert (found.folder, found.state, found.lease_ms, found.offset_ms) == (b"digest", NodeState.ALIVE, LEASE_MS, -700)
    assert beat.slots == dict.fromkeys(slots(*range(SLOTS)))
    assert (beat.beats, len(beat.timeline)) == (1, 8)
    assert found.started_ms <= beat.now_ms


async def test_a_slot_is_taken_from_nobody_who_lives_and_given_in_line_with_the_writes(any_cluster: Cluster) -> None:
    fra, ber = await any_cluster.join("fra"), await any_cluster.join("ber")
    assert sorted(await fra.take(slots(1, 2, 3))) == slots(1, 2, 3)
    assert sorted(await ber.take(slots(2, 3, 4))) == slots(4)
    assert sorted(await fra.take(slots(1))) == slots(1)  # on record as its own: the first answer may have been lost
    await ber.give(slots(1, 4))
    await fra.give(slots(3))
    owners = (await ber.beat()).slots
    assert [owners[slot] for slot in slots(1, 2, 3, 4)] == [fra.me, fra.me, None, None]


async def test_a_job_is_moved_out_of_a_slot_only_while_no_living_node_runs_it_there(any_cluster: Cluster) -> None:
    fra, ber = await any_cluster.join("fra"), await any_cluster.join("ber")
    runs, job, gpu = any_cluster.stores[1].runs, JobId("render"), Slot("label:gpu", 0)
    cursor = Cursor(job=job, due_ms=1, schedule="never", pool=gpu.pool)
    await runs.record(Change(cursors=[cursor]))
    await fra.add_pools({gpu.pool: 1})
    await fra.take([gpu])

    async def pool() -> str:
        await ber.take_out([(job, gpu, EVERY_NODE)])
        return (await runs.cursors())[job].pool

    assert await pool() == gpu.pool
    await runs.record(Change(cursors=[replace(cursor, idle_since_ms=1, paused=True)]))  # it is idle, and not absent
    assert await pool() == gpu.pool
    (run,) = await runs.record(Change(new=[NewRun(job=job, state=RunState.RUNNING, trigger=Trigger())]))
    await runs.record(Change(cursors=[replace(cursor, idle_since_ms=1)]))  # the owner's file was removed
    assert await pool() == gpu.pool
    assert run is not None
    await runs.record(Change(end=[End(run=run, ended_ms=1, outcome=Outcome.SUCCESS)]))
    assert await pool() == EVERY_NODE
    await runs.record(Change(cursors=[cursor]))
    assert await pool() == gpu.pool
    await fra.give([gpu])
    assert await pool() == EVERY_NODE


async def test_two_that_take_at_once_never_own_the_same_slot(any_cluster: Cluster) -> None:
    fra, ber = await any_cluster.join("fra"), await any_cluster.join("ber")
    taken = await asyncio.gather(*(each.take(slots(*range(40))) for _ in range(4) for each in (fra, ber)))
    of_fra, of_ber = ({slot for each in taken[start::2] for slot in each} for start in (0, 1))
    assert not of_fra & of_ber
    assert of_fra | of_ber == set(slots(*range(40)))


async def test_whoever_has_not_beaten_for_its_lease_is_declared_dead_and_its_slots_are_free(
    any_cluster: Cluster,
) -> None:
    fra, ber = await any_cluster.join("fra"), await any_cluster.join("ber")
    await fra.take(slots(1))
    assert not await ber.declare(fra.me)
    any_cluster.let_pass(fra, LEASE_MS / 1000 + 1)
    assert await ber.declare(fra.me)
    assert not await ber.declare(fra.me)
    assert [each.name for each in (await ber.beat()).living] == ["ber"]
    assert await ber.take(slots(1)) == slots(1)
    assert [(each.name, each.state) for each in await ber.known()] == [
        ("fra", NodeState.DEAD),
        ("ber", NodeState.ALIVE),
    ]


async def test_a_dead_node_writes_nothing_and_its_beats_are_refused(any_cluster: Cluster) -> None:
    fra, ber = await any_cluster.join("fra"), await any_cluster.join("ber")
    any_cluster.let_pass(fra, LEASE_MS / 1000 + 1)
    await ber.declare(fra.me)
    with pytest.raises(StoreFenced):
        await put(any_cluster.stores[0], b"key", 1)
    with pytest.raises(StoreFenced):
        await fra.beat()
    with pytest.raises(StoreFenced):
        await fra.take(slots(1))


async def test_who_writes_right_now_is_not_declared_dead_until_that_is_over(any_cluster: Cluster) -> None:
    fra, ber = await any_cluster.join("fra"), await any_cluster.join("ber")
    any_cluster.let_pass(fra, LEASE_MS / 1000 + 1)
    async with any_cluster.writing(fra):
        with pytest.raises(StoreError, match="try again"):
            await ber.declare(fra.me)
        await fra.beat()  # locks no lane
    assert not await ber.declare(fra.me)


async def test_a_start_at_the_same_place_ends_the_one_before_at_once(any_cluster: Cluster) -> None:
    before = await any_cluster.join("fra")
    await before.take(slots(1))
    again = await any_cluster.join("fra")
    assert again.me > before.me
    assert [each.id for each in (await again.beat()).living] == [again.me]
    assert await again.take(slots(1)) == slots(1)
    with pytest.raises(StoreFenced):
        await before.beat()


async def test_of_two_that_join_at_once_under_one_name_one_is_refused_in_one_line(cluster: Cluster) -> None:
    both = [await cluster.open(), await cluster.open()]

    async def join(nodes: Nodes, place: bytes) -> None:
        await nodes.join(node("fra"), place)
        while True:
            await nodes.beat()
            await asyncio.sleep(0.05)

    joining = [asyncio.create_task(join(nodes, bytes([place]))) for place, nodes in enumerate(both)]
    (refused,), (alive,) = await asyncio.wait(joining, return_when=asyncio.FIRST_COMPLETED)
    alive.cancel()
    with pytest.raises(Refused, match="a node named 'fra' is alive: give this one another name"):
        await refused
    assert len(await both[0].known()) == 1


async def test_a_node_that_stands_still_in_the_middle_of_a_beat_is_declared_dead_all_the_same(
    cluster: Cluster,
) -> None:
    fra, ber = await cluster.join("fra", lease_ms=1), await cluster.join("ber")
    stood_still, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def stand_still(connection: sqlite3.Connection) -> None:
        connection.execute("SELECT 1 FROM heart WHERE node = ? FOR UPDATE", (fra.me,))
        loop.call_soon_threadsafe(stood_still.set)
        go_on.wait()

    beating = fra.heart.submit(OpKind.WRITE, stand_still)
    await stood_still.wait()
    try:
        while True:
            with suppress(StoreError):
                if await ber.declare(fra.me):
                    break
    finally:
        go_on.set()
    await asyncio.wait([beating])
    with pytest.raises(StoreFenced):
        await fra.beat()


async def test_a_late_node_whose_transaction_would_never_end_is_declared_dead_all_the_same(cluster: Cluster) -> None:
    fra, ber = await cluster.join("fra", lease_ms=1), await cluster.join("ber")
    with psycopg.connect(cluster.url) as held:
        held.execute(f"SELECT 1 FROM {cluster.schema}.lane WHERE node = {fra.me} FOR UPDATE")
        while True:
            with suppress(StoreError):
                if await ber.declare(fra.me):
                    break
        with pytest.raises(psycopg.OperationalError):
            held.execute("SELECT 1")


async def test_a_name_is_free_again_once_nobody_of_that_name_beats(cluster: Cluster) -> None:
    fra, other = await cluster.join("fra", lease_ms=1), await cluster.open()
    await other.join(node("fra"), place=b"elsewhere")
    assert other.me > fra.me


async def test_a_draining_node_may_write_and_take_its_share_again_later(any_cluster: Cluster) -> None:
    fra, ber = await any_cluster.join("fra"), await any_cluster.join("ber")
    assert await ber.set_draining(fra.me, True)
    assert [each.state for each in (await ber.beat()).living] == [NodeState.DRAINING, NodeState.ALIVE]
    await put(any_cluster.stores[0], b"key", 1)
    assert await ber.set_draining(fra.me, False)
    assert {each.state for each in (await fra.beat()).living} == {NodeState.ALIVE}
    assert not await ber.set_draining(ber.me + 1, True)


async def test_who_leaves_gives_all_and_is_forgotten_when_asked_or_after_a_time(cluster: Cluster) -> None:
    fra, ber, ams = await cluster.join("fra"), await cluster.join("ber"), await cluster.join("ams")
    await fra.take(slots(1, 2))
    await cluster.stores[0].close()
    beat = await ber.beat()
    assert [each.name for each in beat.living] == ["ber", "ams"]
    assert set(beat.slots.values()) == {None}
    assert (await ber.known())[0].state is NodeState.LEFT
    assert await ber.forget(ams.me) == 0  # it lives
    await cluster.stores[2].close()
    assert await ber.forget(ams.me) == 1
    assert await ber.prune(beat.now_ms - 60_000) == 0
    assert await ber.prune(beat.now_ms + 60_000) == 1
    assert [each.name for each in await ber.known()] == ["ber"]


async def test_a_pool_is_made_once_and_removed_when_it_has_no_job_and_no_owner(cluster: Cluster) -> None:
    fra = await cluster.join("fra")
    await fra.add_pools(["node:fra", "label:gpu"])
    await fra.take([Slot("node:fra", 0)])
    await fra.add_pools(["node:fra", "label:gpu", "label:typo"])
    found = (await fra.beat()).slots
    assert len(found) == SLOTS + 33
    assert [slot for slot, owner in found.items() if owner == fra.me] == [Slot("node:fra", 0)]
    in_pool = Cursor(job=JobId("prices"), due_ms=0, schedule="", pool="label:gpu")
    await cluster.stores[0].runs.record(Change(cursors=[in_pool]))
    await fra.prune(0)
    assert {slot.pool for slot in (await fra.beat()).slots} == {EVERY_NODE, "node:fra", "label:gpu"}
