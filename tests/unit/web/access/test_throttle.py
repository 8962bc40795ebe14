"""Guesses are slowed down by address."""

from __future__ import annotations

from spyweb.web.access.throttle import ADDRESSES, FORGOTTEN_S, FREE, FREE_OF_ALL, Throttle
from tests.fakes.clock import FakeClock


def failed(throttle: Throttle, times: int, address: str = "10.0.0.1") -> None:
    for _ in range(times):
        throttle.fail(address)


def test_the_first_wrong_keys_cost_nothing_and_then_each_twice_as_much() -> None:
    throttle = Throttle(FakeClock())
    failed(throttle, FREE)
    waits = [throttle.wait_s("10.0.0.1")]
    for _ in range(8):
        throttle.fail("10.0.0.1")
        waits.append(throttle.wait_s("10.0.0.1"))
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_another_address_does_not_wait() -> None:
    throttle = Throttle(FakeClock())
    failed(throttle, 50)
    assert throttle.wait_s("10.0.0.2") == 0


def test_many_addresses_together_wait_too_but_for_one_that_had_the_right_key() -> None:
    throttle = Throttle(FakeClock())
    throttle.succeed("10.0.0.1")
    for number in range(FREE_OF_ALL + 3):
        throttle.fail(f"2001:db8:{number:x}::/64")
    assert throttle.wait_s("10.9.9.9") == 4
    assert throttle.wait_s("10.0.0.1") == 0
    failed(throttle, FREE + 1)
    assert throttle.wait_s("10.0.0.1") == 1


def test_waiting_ends_and_failures_are_forgotten_by_monotonic_time() -> None:
    clock = FakeClock()
    throttle = Throttle(clock)
    failed(throttle, FREE + 3)
    clock.jump(1_000_000)
    assert throttle.wait_s("10.0.0.1") == 4
    clock.advance(4)
    assert throttle.wait_s("10.0.0.1") == 0
    throttle.fail("10.0.0.1")
    assert throttle.wait_s("10.0.0.1") == 8
    clock.advance(FORGOTTEN_S + 1)
    throttle.fail("10.0.0.1")
    assert throttle.wait_s("10.0.0.1") == 0


def test_only_so_many_addresses_are_known() -> None:
    throttle = Throttle(FakeClock())
    failed(throttle, 20, "first")
    for number in range(ADDRESSES):
        throttle.fail(f"a{number}")
    assert len(throttle._known) == ADDRESSES
    assert "first" not in throttle._known
