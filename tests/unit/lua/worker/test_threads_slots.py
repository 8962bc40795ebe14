from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from spyweb.lua import wire
from spyweb.lua.worker.threads import ThreadSlots


@pytest.fixture
def descriptor() -> Iterator[int]:
    descriptor = os.memfd_create("slots")
    os.ftruncate(descriptor, wire.SLOT_BYTES)
    yield descriptor
    os.close(descriptor)


def test_what_a_thread_writes_is_seen_in_the_shared_memory(descriptor: int) -> None:
    slots = ThreadSlots(descriptor)
    slots.runs[slots.take()] = 77

    assert memoryview(os.pread(descriptor, wire.SLOT_BYTES, 0)).cast("Q").tolist() == [77] + [0] * (2 * wire.SLOTS - 1)


def test_a_slot_given_back_is_idle_and_taken_again(descriptor: int) -> None:
    slots = ThreadSlots(descriptor)
    slot = slots.take()
    slots.runs[slot] = 77
    slots.give_back(slot)

    assert slots.runs[slot] == 0
    assert slots.take() == slot


def test_more_threads_than_slots_share_the_last_one(descriptor: int) -> None:
    slots = ThreadSlots(descriptor)
    taken = [slots.take() for _ in range(wire.SLOTS + 2)]

    assert taken[-2:] == [wire.SLOTS - 1] * 2
