from __future__ import annotations

from spyweb.lua.wire import Why
from spyweb.lua.worker.runs import Ledger, Tenancy


class Silent:
    def emit(self, home: Tenancy, level: bytes, text: bytes) -> int:
        return 0


def test_an_early_cancel_is_remembered_once() -> None:
    ledger = Ledger()
    ledger.note_early(5, Why.CANCELLED)

    assert (ledger.take_early(5), ledger.take_early(5)) == (Why.CANCELLED, 0)


def test_only_the_latest_early_cancels_are_remembered() -> None:
    ledger = Ledger()
    for run in range(2000):
        ledger.note_early(run, Why.CANCELLED)

    assert (ledger.take_early(0), ledger.take_early(1999)) == (0, Why.CANCELLED)


def test_a_retired_vm_takes_no_run_and_is_known_until_closed() -> None:
    ledger, home = Ledger(), Tenancy(3, "jobs/x.lua", Silent())
    ledger.homes[3] = home
    ledger.retire(home)

    assert (ledger.homes, ledger.closing, home.closing) == ({}, {home}, True)


def test_a_script_with_long_steps_has_its_next_vm_in_the_slow_lane_too() -> None:
    ledger = Ledger()
    ledger.weigh(ledger.settle(1, "jobs/hog.lua", Silent()), heavy=True)

    assert ledger.settle(2, "jobs/hog.lua", Silent()).heavy
    assert not ledger.settle(3, "jobs/other.lua", Silent()).heavy


def test_a_script_that_was_found_light_begins_outside_the_slow_lane() -> None:
    ledger = Ledger()
    home = ledger.settle(1, "jobs/hog.lua", Silent())
    ledger.weigh(home, heavy=True)
    ledger.weigh(home, heavy=False)

    assert (home.heavy, ledger.settle(2, "jobs/hog.lua", Silent()).heavy) == (False, False)


def test_only_the_latest_heavy_scripts_are_remembered() -> None:
    ledger = Ledger()
    for number in range(2000):
        ledger.weigh(ledger.settle(number, f"jobs/{number}.lua", Silent()), heavy=True)

    assert [ledger.settle(1, f"jobs/{number}.lua", Silent()).heavy for number in (0, 1999)] == [False, True]
