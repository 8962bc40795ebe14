"""Slots, and what of them a daemon owns."""

from __future__ import annotations

from spyweb.ownership import CHIEF, EVERY_NODE, LABEL_SLOTS, SLOTS, Ownership, Slot, pool_of, slot_of
from tests.fakes.clock import FakeClock


def test_a_job_lies_in_the_same_slot_on_every_node_and_in_every_release() -> None:
    assert slot_of("check-api") == Slot(EVERY_NODE, 99)


def test_jobs_are_spread_over_all_slots() -> None:
    assert {slot_of(f"job{number}").number for number in range(20_000)} == set(range(SLOTS))


def test_a_pin_and_labels_are_pools_of_their_own() -> None:
    assert slot_of("check-api", pool_of("fra", ())) == slot_of("other", pool_of("fra", ())) == Slot("node:fra", 0)
    assert pool_of("", ("gpu", "eu")) == pool_of("", ("eu", "gpu")) == "label:eu,gpu"
    assert {slot_of(f"job{number}", "label:gpu").number for number in range(500)} == set(range(LABEL_SLOTS))


def test_a_daemon_alone_on_its_database_owns_everything_and_another_what_it_has_taken() -> None:
    alone, another = Ownership(FakeClock()), Ownership(FakeClock(), {Slot(EVERY_NODE, 7)})
    assert alone.is_chief
    assert alone.has(Slot("label:gpu", 3))
    assert another.has(Slot(EVERY_NODE, 7))
    assert not another.has(CHIEF)
    assert not another.is_chief


def test_nothing_begins_once_the_trust_has_run_out() -> None:
    clock = FakeClock()
    ownership = Ownership(clock)
    assert ownership.is_trusted
    ownership.trusted_until = clock.boottime()
    assert not ownership.is_trusted
