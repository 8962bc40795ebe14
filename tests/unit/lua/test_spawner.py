from __future__ import annotations

import errno
import mmap
import os

import pytest

from spyweb.lua import wire
from spyweb.lua.spawner import Slots


def test_the_runs_being_stepped_are_read_from_the_shared_memory() -> None:
    slots = Slots()
    theirs = mmap.mmap(slots.descriptor, wire.SLOT_BYTES)
    assert slots.stepped() == {}

    with memoryview(theirs) as view, view.cast("Q") as numbers:
        numbers[0], numbers[wire.SLOTS - 1] = 7, 2**63
        numbers[wire.SLOTS], numbers[2 * wire.SLOTS - 1] = 1500, 2**64 - 1
    assert slots.stepped() == {7: 1500, 2**63: wire.MOST_CPU_MS}

    theirs.close()
    assert slots.stepped() == {7: 1500, 2**63: wire.MOST_CPU_MS}  # it outlives the worker
    slots.close()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has seals")
def test_nobody_can_make_the_shared_memory_shorter() -> None:
    slots = Slots()
    with pytest.raises(PermissionError):
        os.ftruncate(slots.descriptor, 0)
    slots.close()


def test_slots_that_can_not_be_mapped_leave_no_descriptor_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, _size: int) -> None:
        tried.append(descriptor)
        raise OSError(errno.EMFILE, "Too many open files")  # a mapping has a descriptor of its own

    tried: list[int] = []
    monkeypatch.setattr(mmap, "mmap", refuse)

    with pytest.raises(OSError, match="Too many open files"):
        Slots()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(tried[0])
