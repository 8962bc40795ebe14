"""A node's loops: when it may act, what it declares, takes and gives, and when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from typing import cast

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from spyweb.cluster.node import MOST_POOLS, ClusterNode
from spyweb.errors import StoreError, StoreFenced
from spyweb.ownership import EVERY_NODE, Ownership, Slot
from spyweb.scheduler.slots import SlotWork
from spyweb.settings.sections import ClusterSettings
from spyweb.store.model.nodes import Beat, Node, NodeState
from spyweb.store.postgres.nodes import Nodes
from tests.fakes.clock import FakeClock

ME, OTHER = 1, 2
LEASE_S, BEAT_S = 10.0, 2.0
SLOTS = [Slot(EVERY_NODE, number) for number in range(8)]


def node(number: int, name: str) -> Node:
    return Node(id=number, name=name, lease_ms=int(LEASE_S * 1000))


class Record:
    """What PostgreSQL has of the nodes, in the place of `Nodes`."""

    me = ME

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.nodes = {ME: node(ME, "fra"), OTHER: node(OTHER, "ber")}
        self.slots: dict[Slot, int | None] = dict.fromkeys(SLOTS)
        self.beats = 0
        self.timeline = "00000001"
        self.ahead_ms = 0
        self.answer_s = 0.0
        self.away = False
        self.fenced = False
        self.others_beat = True
        self.declared: list[int] = []
        self.fails_to_declare = 0  # so many times

    async def beat(self, folder: bytes, offset_ms: int) -> Beat:
        now_ms = self._clock.now_ms() + self.ahead_ms
        if self.away:
            raise StoreError("no answer")
        if self.fenced:
            raise StoreFenced
        self.beats += 1
        self.nodes[ME] = replace(self.nodes[ME], offset_ms=offset_ms)
        for number, each in self.nodes.items():
            if number == ME or self.others_beat:
                self.nodes[number] = replace(each, beat_ms=now_ms)
        living = tuple(self.nodes.values())
        answer = Beat(now_ms=now_ms, timeline=self.timeline, beats=self.beats, living=living, slots=dict(self.slots))
        await self._clock.sleep(self.answer_s)
        return answer

    async def known(self) -> list[Node]:
        return [node(ME, "fra"), node(OTHER, "ber")]

    async def declare(self, late: int) -> bool:
        if self.fails_to_declare:
            self.fails_to_declare -= 1
            raise StoreError("no answer")
        self.declared.append(late)
        self.nodes.pop(late)
        return True

    async def set_draining(self, number: int, draining: bool) -> bool:
        self.nodes[number] = replace(self.nodes[number], state=NodeState.DRAINING if draining else NodeState.ALIVE)
        return True

    async def take(self, slots: Collection[Slot]) -> list[Slot]:
        self.slots |= dict.fromkeys(slots, ME)
        return list(slots)

    async def give(self, slots: Collection[Slot]) -> None:
        self.slots |= dict.fromkeys(slots)

    async def add_pools(self, pools: Collection[str]) -> None:
        self.slots |= dict.fromkeys(Slot(pool, 0) for pool in pools)


class Work:
    """The work of slots, of which the test says what is busy, in the place of `SlotWork`."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self.busy: set[Slot] = set()
        self.stopped = 0  # how often all runs were ended
        self.is_lost = False
        self.died = ""  # whose runs were lost by what was gained last

    @property
    def owned(self) -> set[Slot]:
        assert self._ownership.owned is not None
        return self._ownership.owned

    async def look(self, slots: Collection[Slot], died: str) -> None:
        self.owned.update(slots)
        self.died = died if slots else self.died

    def idle(self, slots: Iterable[Slot]) -> set[Slot]:
        return set(slots) - self.busy

    def release(self, idle: Collection[Slot]) -> None:
        self.owned.difference_update(idle)

    def distrust(self) -> None:
        self.stopped += not self._ownership.is_trusted

    def lose(self) -> None:
        self.is_lost = True

    def strays(self) -> list[object]:
        return []


class Cluster:
    """One node under test, its loops running on a clock that the test turns."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.record = Record(clock)
        self.ownership = Ownership(clock, set())
        self.ownership.trusted_until = 0
        self.work = Work(self.ownership)
        self.node = ClusterNode(
            nodes=cast("Nodes", self.record),
            ownership=self.ownership,
            work=cast("SlotWork", self.work),
            clock=clock,
            settings=ClusterSettings(name="fra", lease_ms=int(LEASE_S * 1000), beat_ms=int(BEAT_S * 1000)),
        )
        loop = asyncio.get_running_loop()
        self.beating = loop.create_task(self.node.keep_beating())
        self.balancing = loop.create_task(self.node.keep_balanced())

    def acts(self) -> bool:
        return self.ownership.is_trusted

    async def close(self) -> None:
        for task in (self.beating, self.balancing):
            task.cancel()
            with suppress(asyncio.CancelledError, StoreFenced):
                await task


@pytest.fixture
async def cluster(clock: FakeClock) -> AsyncIterator[Cluster]:
    clock.advance(100)  # this machine has been up for a while
    opened = Cluster(clock)
    yield opened
    await opened.close()


async def test_a_node_acts_for_less_than_its_lease_from_when_it_sent_the_last_beat_that_was_answered(
    cluster: Cluster, clock: FakeClock
) -> None:
    cluster.record.answer_s = 1.5
    await clock.turn(2 * BEAT_S + 1.5)  # the second such answer has come
    assert cluster.acts()
    cluster.record.away, cluster.work.stopped = True, 0
    await clock.turn(LEASE_S * 0.9 - 1.6)
    assert cluster.acts()
    await clock.turn(0.2)
    assert not cluster.acts()
    assert cluster.work.stopped == 1  # between two beats
    assert cluster.node.status == "PostgreSQL does not answer: no answer"
    cluster.record.away = False
    await clock.turn(BEAT_S + 1.5)
    assert cluster.acts()


async def test_a_node_takes_its_share_and_that_of_a_dead_one(cluster: Cluster, clock: FakeClock) -> None:
    await clock.turn()
    assert cluster.node.settled.is_set()
    assert len(cluster.ownership.owned or ()) == 4
    assert cluster.node.status == "4 of 8 slots, 2 nodes"
    assert cluster.work.died == ""
    cluster.record.others_beat = False
    cluster.record.slots |= dict.fromkeys(set(SLOTS) - cluster.work.owned, OTHER)
    await clock.turn(LEASE_S + 2 * BEAT_S)
    assert cluster.record.declared == [OTHER]
    assert cluster.ownership.owned == set(SLOTS)
    assert cluster.work.died == "ber"


async def test_who_was_away_beats_for_a_lease_before_it_declares_anyone(cluster: Cluster, clock: FakeClock) -> None:
    await clock.turn(LEASE_S * 2)
    cluster.record.away, cluster.record.others_beat = True, False
    await clock.turn(LEASE_S * 2)
    cluster.record.away = False
    await clock.turn(LEASE_S)
    assert not cluster.record.declared
    cluster.record.others_beat = True  # it was away as well, and is back
    await clock.turn(LEASE_S * 2)
    assert not cluster.record.declared


async def test_a_node_is_over_at_once_where_the_store_refuses_its_writes(cluster: Cluster, clock: FakeClock) -> None:
    await clock.turn()
    cluster.record.answer_s = 1
    await clock.turn(BEAT_S)  # while it beats
    cluster.node.be_over(StoreFenced("unknown"))
    await clock.turn(1)
    assert not cluster.acts()
    with pytest.raises(StoreFenced, match="unknown"):
        await cluster.beating


AWAY_AGAIN = {"timeline": "00000002", "fails_to_declare": 1}


@pytest.mark.parametrize("change", [{"timeline": "00000002"}, AWAY_AGAIN, {"beats": 1}, {"fenced": True}])
async def test_a_node_is_over_once_it_is_declared_dead_or_the_database_has_failed_over_or_went_back(
    cluster: Cluster, clock: FakeClock, change: dict[str, object]
) -> None:
    await clock.turn(3 * BEAT_S)
    for name, value in change.items():
        setattr(cluster.record, name, value)
    await clock.turn(2 * BEAT_S)
    with pytest.raises(StoreFenced):
        await cluster.beating
    assert cluster.work.is_lost
    assert not cluster.acts()
    assert cluster.record.declared == ([] if cluster.record.fenced else [ME])  # else its runs could still write


async def test_a_clock_that_is_wrong_is_told_and_by_half_a_lease_nothing_is_owned_until_it_is_right(
    cluster: Cluster, clock: FakeClock
) -> None:
    with capture_logs() as lines:
        await clock.turn()
        cluster.record.ahead_ms = 1_500
        await clock.turn(2 * BEAT_S)
        assert len(cluster.work.owned) == 4
        cluster.record.ahead_ms = 6_000
        await clock.turn(6 * BEAT_S)
    assert not cluster.work.owned
    assert [line["by_ms"] for line in lines if "clock" in line["event"]] == [-1_500]
    cluster.record.ahead_ms = 0
    await clock.turn(2 * BEAT_S)
    assert len(cluster.work.owned) == 4
    assert cluster.record.nodes[ME].state is NodeState.ALIVE, "who drains it meanwhile is obeyed"


async def test_an_answer_that_took_long_says_nothing_about_the_clock(cluster: Cluster, clock: FakeClock) -> None:
    cluster.record.answer_s = 4
    with capture_logs() as lines:
        await clock.turn(3 * BEAT_S)
    assert not [line for line in lines if "clock" in line["event"]]


async def test_a_node_that_leaves_takes_nothing_and_gives_each_slot_once_it_is_idle(
    cluster: Cluster, clock: FakeClock
) -> None:
    await clock.turn()
    busy = min(cluster.work.owned)
    cluster.work.busy = {busy}
    await cluster.node.leave()
    await clock.turn()
    assert cluster.work.owned == {busy}
    assert cluster.record.nodes[ME].state is NodeState.DRAINING
    cluster.work.busy.clear()
    await clock.turn(1)
    assert not cluster.work.owned
    assert set(cluster.record.slots.values()) == {None}


async def test_a_pool_that_a_job_is_the_first_to_ask_for_is_made_and_its_share_taken(
    cluster: Cluster, clock: FakeClock
) -> None:
    cluster.node.pools = frozenset({"node:fra", "node:ams"})
    await clock.turn()
    await clock.turn()
    assert cluster.record.slots[Slot("node:fra", 0)] == ME
    assert cluster.record.slots[Slot("node:ams", 0)] is None  # nobody may own it
    cluster.node.pools = frozenset(f"node:{number}" for number in range(2 * MOST_POOLS))
    await clock.turn(3 * BEAT_S)
    assert len({slot.pool for slot in cluster.record.slots}) == MOST_POOLS
