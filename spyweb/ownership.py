"""Say what this daemon runs: jobs, targets of messages and chores lie in slots, and each slot has one owner.

A daemon that is alone on its database owns every slot.  In a cluster the slots are divided among the nodes, and a slot
is owned by the node that is on record in the store.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from spyweb.clock import Clock

SLOTS = 256  # of the pool for every node; shares are even only where a slot has several jobs
LABEL_SLOTS = 16  # of a pool for nodes with certain labels
EVERY_NODE, NODE_POOL, LABEL_POOL = "", "node:", "label:"  # a pool, or what the name of one begins with


class Slot(NamedTuple):
    """A part of the work that is owned as a whole."""

    pool: str  # EVERY_NODE, `node:NAME`, or `label:` and labels, sorted, with commas between them
    number: int


NO_TRUST = "this node has not reached the database lately, so another one may have taken its work over"
CHIEF = Slot(EVERY_NODE, 0)  # its owner does what is done once for all nodes


def pool_of(node: str, labels: Sequence[str]) -> str:
    """Return the pool that a job asks for: for its node, for nodes with its labels, or for every node."""
    if node:
        return f"{NODE_POOL}{node}"
    return f"{LABEL_POOL}{','.join(sorted(labels))}" if labels else EVERY_NODE


def slots_in(pool: str) -> int:
    return 1 if pool.startswith(NODE_POOL) else LABEL_SLOTS if pool else SLOTS


def place_of(name: str) -> int:
    """Return the place of a job, or of what else has an owner: by it the slot in each pool is chosen."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")


def slot_at(place: int, pool: str) -> Slot:
    return Slot(pool, place % slots_in(pool))


def slot_of(name: str, pool: str = EVERY_NODE) -> Slot:
    return slot_at(place_of(name), pool)


class Ownership:
    """The slots that this daemon owns now, and until when it may act on that."""

    def __init__(self, clock: Clock, owned: set[Slot] | None = None, node: str = "") -> None:
        self._clock = clock
        self.node = node  # the name of this one; "" for a daemon that is alone
        self.nodes: frozenset[str] = frozenset()  # the names of those that live, by the latest beat
        self.owned = owned  # None: every slot there is, as a daemon alone on its database
        self.trusted_until = math.inf  # by `Clock.boottime`

    def has(self, slot: Slot) -> bool:
        return self.owned is None or slot in self.owned

    @property
    def is_chief(self) -> bool:
        return self.has(CHIEF)

    @property
    def is_trusted(self) -> bool:
        """Return whether something may begin that the store can't refuse: a run, an op, a message."""
        return self.trusted_until == math.inf or self._clock.boottime() < self.trusted_until
