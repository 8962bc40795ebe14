"""Faults that are planted, one at a time: the simulation must find each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from random import Random
from typing import Any, cast
from unittest.mock import patch

from msgspec.structs import replace

from spyweb.cluster import node as cluster_node
from spyweb.cluster.balance import balance
from spyweb.model import JobId
from spyweb.ownership import Ownership, Slot
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.scheduler import scheduler
from spyweb.scheduler.slots import SlotWork
from spyweb.store.model.nodes import Beat
from tests.fakes.clock import START_MS
from tests.fakes.simulation.database import Session, SimConnection, SimDatabase, SimNodes, Transaction
from tests.fakes.simulation.virtual_time import BOOTED_S, MachineClock
from tests.fakes.simulation.world import LEASE_MS, World

Planted = Callable[[], AbstractContextManager[Any]]


def without_fence() -> AbstractContextManager[Any]:
    return patch.object(SimDatabase, "is_fenced", "never")


def fenced_before() -> AbstractContextManager[Any]:
    """Look at the fence in a transaction before."""
    return patch.object(SimDatabase, "is_fenced", "before")


@contextmanager
def shared_lock() -> Iterator[None]:
    """Let transactions of one node overlap, as a shared lock of its lane does; commits are often slow."""
    with patch.object(SimDatabase, "is_shared", True), patch.object(SimDatabase, "slow_s", (0.0, 2.0, 6.0)):
        yield


@contextmanager
def trust_by_wall_clock() -> Iterator[None]:
    """Go by a clock that is set back, often while the machine is frozen."""

    def boottime(clock: MachineClock) -> float:
        return BOOTED_S + (clock.now_ms() - START_MS) / 1000

    def wake_up_early(world: World, name: str, _dice: Random) -> None:
        world.machines[name].freeze(LEASE_MS * 1.5 / 1000)
        world.machines[name].offset_ms -= LEASE_MS * 2

    often = patch.dict(World.STEPS, {"wake_up_early": 60})
    possible = patch.object(World, "wake_up_early", wake_up_early, create=True)
    with patch.object(MachineClock, "boottime", boottime), often, possible:
        yield


@contextmanager
def no_trust() -> Iterator[None]:
    """Begin runs, and let those in flight go on, whether or not the node may act."""

    class Reckless:
        is_trusted = True

        def __init__(self, ownership: Ownership) -> None:
            self.__dict__.update(has=ownership.has, real=ownership)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["real"], name)

    begin = LiveJobs.__init__

    def begin_recklessly(live: LiveJobs, ownership: Ownership) -> None:
        begin(live, ownership)
        live.ownership = cast("Ownership", Reckless(ownership))

    with patch.object(LiveJobs, "__init__", begin_recklessly), patch.object(SlotWork, "distrust", lambda _work: None):
        yield


@contextmanager
def taking_from_the_living() -> Iterator[None]:
    """Take slots of nodes whose beat is late, before their death is declared."""

    def balance_early(beat: Beat, *rest: Any) -> Any:
        living = tuple(node for node in beat.living if beat.now_ms - node.beat_ms <= LEASE_MS / 2)
        return balance(replace(beat, living=living), *rest)

    with (
        patch.object(cluster_node, "balance", balance_early),
        patch.object(SimNodes, "is_free", lambda _nodes, _owner: True),
    ):
        yield


@contextmanager
def giving_beside_the_queue() -> Iterator[None]:
    """Give slots at once, whatever is on its way to the store."""

    async def give_now(nodes: SimNodes, slots: Collection[Slot]) -> None:
        nodes.give_now(None, slots)

    with (
        patch.object(SimNodes, "give", give_now),
        patch.object(SlotWork, "_busy", lambda _work: set[JobId]()),
    ):
        yield


def beginning_what_is_in_doubt() -> AbstractContextManager[Any]:
    """Take a batch whose answer was lost for committed, and its results for what they would be."""

    async def guess(_connection: SimConnection, tx: Transaction) -> str:
        if tx.state != "committed":
            tx.state, tx.result = "committed", foretell(tx)
        return tx.state

    return patch.object(SimConnection, "ask_for", guess)


def foretell(tx: Transaction) -> Any:
    """Return the results of a batch, without a trace of it."""
    database = tx.link.database
    raw, owners = database.raw, dict(database.owners)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database.raw:
        raw.backup(database.raw)
        database.add_functions(database.raw)
        try:
            return tx.work(Session(database, tx))
        finally:
            database.raw, database.owners = raw, owners


def skipping_in_silence() -> AbstractContextManager[Any]:
    decide = scheduler._decide

    def decide_silently(job: LiveJob, now_ms: int) -> Any:
        return replace(decide(job, now_ms), missed=())

    return patch.object(scheduler, "_decide", decide_silently)
