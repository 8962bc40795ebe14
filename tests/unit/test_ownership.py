"""Slots, and what of them a daemon owns."""

from __future__ import annotations

from spyweb.ownership import CHIEF, EVERY_NODE, LABEL_SLOTS, SLOTS, Ownership, Slot, slot_of, slot_of_job
from tests.fakes.clock import FakeClock


def test_a_job_lies_in_the_same_slot_on_every_node_and_in_every_release() -> None:
    assert slot_of("check-api") == Slot(EVERY_NODE, 99)
    assert slot_of_job("check-api", "", ()) == slot_of("check-api")


def test_jobs_are_spread_over_all_slots() -> None:
    assert {slot_of(f"job{number}").number for number in range(20_000)} == set(range(SLOTS))


def test_a_pin_and_labels_are_pools_of_their_own() -> None:
    assert slot_of_job("check-api", "fra", ()) == slot_of_job("other", "fra", ()) == Slot("node:fra", 0)
    labelled = slot_of_job("check-api", "", ("gpu", "eu"))
    assert labelled == slot_of_job("check-api", "", ("eu", "gpu"))
    assert labelled.pool == "label:eu,gpu"
    assert 0 <= labelled.number < LABEL_SLOTS


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
