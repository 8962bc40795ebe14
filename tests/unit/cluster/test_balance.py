"""The slots that a node takes and gives."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spyweb.cluster.balance import balance, eligible
from spyweb.ownership import CHIEF, EVERY_NODE, Slot
from spyweb.store.model.nodes import Beat, Node, NodeState

LEASE_MS = 10_000
GONE = 99  # no living node has this number
POOLS = {EVERY_NODE: 32, "label:eu,gpu": 16, "node:fra": 1}

living_nodes = st.lists(
    st.builds(
        Node,
        name=st.sampled_from(["fra", "ber"]),
        labels=st.sampled_from([(), ("gpu",), ("eu", "gpu", "ssd")]),
        is_standby=st.booleans(),
        only_labels=st.booleans(),
        state=st.sampled_from([NodeState.ALIVE, NodeState.DRAINING]),
        lease_ms=st.just(LEASE_MS),
    ),
    min_size=1,
    max_size=5,
).map(lambda nodes: tuple(replace(node, id=number) for number, node in enumerate(nodes, 1)))


def node(number: int, name: str = "", **given: Any) -> Node:
    return Node(id=number, name=name, lease_ms=LEASE_MS, **given)


def beat(living: tuple[Node, ...], slots: dict[Slot, int | None]) -> Beat:
    return Beat(now_ms=0, timeline="", beats=1, living=living, slots=slots)


def owned_by(slots: dict[Slot, int | None], number: int) -> set[Slot]:
    return {slot for slot, owner in slots.items() if owner == number}


def settle(living: tuple[Node, ...], slots: dict[Slot, int | None], busy: frozenset[Slot] = frozenset()) -> None:
    """Have each node take and give until none does any more; nobody may take what a living node owns."""
    ids = {each.id for each in living}
    for _ in range(64):
        before = dict(slots)
        for me in sorted(ids):
            mine = owned_by(slots, me)
            take, give = balance(beat(living, dict(slots)), me, mine, mine - busy)
            assert not any(slots[slot] in ids for slot in take)
            assert mine - busy >= set(give)
            slots |= dict.fromkeys(give) | dict.fromkeys(take, me)
        if slots == before:
            return
    raise AssertionError("slots go on changing hands")


@given(living_nodes, st.data())
def test_whoever_owned_what_each_node_comes_to_an_equal_share_of_the_pools_that_it_may_own(
    living: tuple[Node, ...], data: st.DataObject
) -> None:
    owners = st.sampled_from([None, GONE, *(each.id for each in living)])
    slots = {Slot(pool, number): data.draw(owners) for pool, count in POOLS.items() for number in range(count)}
    settle(living, slots)
    for pool in POOLS:
        able = [each.id for each in eligible(pool, living)]
        of_pool = {slot: owner for slot, owner in slots.items() if slot.pool == pool}
        shares = [len(owned_by(of_pool, each)) for each in able]
        if able:
            assert set(of_pool.values()) <= set(able)
            assert max(shares) - min(shares) <= 1
        else:
            assert set(of_pool.values()) <= {None, GONE}


def test_a_slot_that_is_never_idle_stays_until_it_is() -> None:
    slots: dict[Slot, int | None] = {Slot(EVERY_NODE, number): 1 for number in range(8)}
    settle((node(1), node(2)), slots, frozenset(slots))
    assert owned_by(slots, 1) == set(slots)


def test_at_most_an_eighth_of_a_pool_is_given_at_once_and_what_is_done_once_for_all_stays() -> None:
    slots: dict[Slot, int | None] = {Slot(EVERY_NODE, number): 1 for number in range(256)}
    _, give = balance(beat((node(1), node(2)), slots), 1, set(slots), set(slots))
    assert len(give) == 32
    settle((node(1), node(2)), slots)
    assert slots[CHIEF] == 1


def test_nodes_that_begin_together_want_different_slots() -> None:
    slots: dict[Slot, int | None] = {Slot(EVERY_NODE, number): None for number in range(256)}
    living = (node(1), node(2), node(3))
    wanted = [balance(beat(living, slots), me, set(), set())[0] for me in (1, 2, 3)]
    assert sorted(map(len, wanted)) == [85, 85, 86]
    assert {slot for each in wanted for slot in each} == set(slots)


def test_a_node_on_standby_owns_slots_only_while_no_other_may_own_them() -> None:
    spare = node(2, is_standby=True, labels=("gpu",))
    assert eligible(EVERY_NODE, (node(1), spare)) == [node(1)]
    assert eligible(EVERY_NODE, (spare,)) == [spare]
    assert eligible("label:gpu", (node(1), spare)) == [spare]


def test_what_is_a_nodes_own_only_on_record_is_taken_again_within_its_share_and_else_given() -> None:
    slots: dict[Slot, int | None] = {Slot(EVERY_NODE, number): 1 for number in range(8)}
    assert set(balance(beat((node(1),), slots), 1, set(), set())[0]) == set(slots)
    owned = {Slot(EVERY_NODE, number) for number in range(4)}
    take, give = balance(beat((node(1), node(2)), slots), 1, owned, set())
    assert (take, set(give)) == ([], slots.keys() - owned)
