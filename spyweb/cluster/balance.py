"""Decide which slots a node takes and gives: pure, from what is on record.

Of each pool, the nodes that may own its slots have equal shares, but for one slot where they do not divide evenly.
Each computes its own: it takes what is free, and gives what is above.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from spyweb.ownership import LABEL_POOL, NODE_POOL, Slot
from spyweb.store.model.nodes import Beat, Node, NodeState

PART_GIVEN = 8  # an eighth of a pool at once, at most: slots that are given wait for their next owner


def balance(beat: Beat, me: int, owned: Set[Slot], idle: Set[Slot]) -> tuple[list[Slot], list[Slot]]:
    """Return what this node takes, and gives: of its idle slots, and of those that are its own only on record."""
    living = {node.id for node in beat.living}
    pools: dict[str, dict[Slot, int | None]] = {}
    for slot, owner in beat.slots.items():
        pools.setdefault(slot.pool, {})[slot] = owner
    take: list[Slot] = []
    give: list[Slot] = []
    for pool, owners in pools.items():
        start, share = share_of(me, len(owners), eligible(pool, beat.living))
        mine = owned & owners.keys()
        missed = {slot for slot, owner in owners.items() if owner == me} - owned  # an answer was lost, or work failed
        if len(mine) < share:  # from an own place on: two that take at once rarely want the same
            free = [slot for slot, owner in owners.items() if slot in missed or owner not in living]
            take += sorted(free, key=lambda slot: (slot.number - start) % len(owners))[: share - len(mine)]
        elif len(mine) > share:  # the chief's slot last
            most = min(len(mine) - share, max(1, len(owners) // PART_GIVEN))
            give += sorted(idle & mine, reverse=True)[:most]
        give += missed.difference(take)
    return take, give


def share_of(node: int, slots: int, among: Sequence[Node]) -> tuple[int, int]:
    """Return where this node's share of a pool begins, and how many slots it has."""
    ids = [each.id for each in among]
    if node not in ids:
        return 0, 0
    rank = ids.index(node)
    each, more = divmod(slots, len(ids))
    return rank * each + min(rank, more), each + (rank < more)


def eligible(pool: str, living: Collection[Node]) -> list[Node]:
    """Return the nodes that may own slots of this pool, by id; those on standby only where there is no other."""
    able = [node for node in living if node.state is NodeState.ALIVE and is_in_time(node) and _fits(pool, node)]
    return [node for node in able if not node.is_standby] or able


def is_in_time(node: Node) -> bool:
    """Return whether its clock is right to half a lease: else nodes would not agree on what is due."""
    return abs(node.offset_ms) <= node.lease_ms / 2


def _fits(pool: str, node: Node) -> bool:
    if pool.startswith(NODE_POOL):
        return node.name == pool.removeprefix(NODE_POOL)
    if pool.startswith(LABEL_POOL):
        return set(node.labels).issuperset(pool.removeprefix(LABEL_POOL).split(","))
    return not node.only_labels
