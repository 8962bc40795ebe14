from __future__ import annotations

from threading import get_ident

import pytest

from spyweb.lua.worker import limits
from spyweb.lua.worker.runs import Closing, Registry
from spyweb.lua.worker.threads import has_endless_closing


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """How much each thread has used."""
    used = {get_ident(): 100.0}
    monkeypatch.setattr(limits, "cpu_of", used.__getitem__)
    return used


def test_a_vm_that_is_being_closed_for_too_long_is_reported_once(cpu: dict[int, float]) -> None:
    registry = Registry()
    registry.closings[get_ident()] = Closing(0)

    assert not has_endless_closing(registry)
    cpu[get_ident()] += limits.CLOSING
    assert not has_endless_closing(registry)
    cpu[get_ident()] += 0.1
    assert has_endless_closing(registry)
    assert not has_endless_closing(registry)


def test_a_large_vm_may_take_longer_to_close(cpu: dict[int, float]) -> None:
    registry = Registry()
    registry.closings[get_ident()] = Closing(10 * limits.CLOSING_RATE)

    assert not has_endless_closing(registry)
    cpu[get_ident()] += limits.CLOSING + 9
    assert not has_endless_closing(registry)
    cpu[get_ident()] += 2
    assert has_endless_closing(registry)


def test_what_a_thread_used_before_it_closes_a_vm_does_not_count(cpu: dict[int, float]) -> None:
    registry = Registry()
    cpu[get_ident()] = 3600.0
    registry.closings[get_ident()] = Closing(0)

    assert not has_endless_closing(registry)
    assert not has_endless_closing(registry)
