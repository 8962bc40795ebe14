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
    ledger, home = Ledger(), Tenancy(3, Silent())
    ledger.homes[3] = home
    ledger.retire(home)

    assert (ledger.homes, ledger.closing, home.closing) == ({}, {home}, True)
