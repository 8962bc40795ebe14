from __future__ import annotations

import mmap

from spyweb.lua import wire
from spyweb.lua.slots import Slots


def test_the_runs_being_stepped_are_read_from_the_shared_memory() -> None:
    slots = Slots()
    theirs = mmap.mmap(slots.descriptor, wire.SLOT_BYTES)
    assert slots.stepped() == frozenset()

    with memoryview(theirs) as view, view.cast("Q") as numbers:
        numbers[0], numbers[wire.SLOTS - 1] = 7, 2**63
    assert slots.stepped() == {7, 2**63}

    theirs.close()
    assert slots.stepped() == {7, 2**63}  # it outlives the worker
    slots.close()
