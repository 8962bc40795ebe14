from __future__ import annotations

import pytest

from spyweb.daemon.testing import VirtualClock
from tests.fakes.clock import FakeClock


@pytest.fixture
def real() -> FakeClock:
    return FakeClock()


async def test_a_sleep_ends_at_once_and_moves_the_time_on(real: FakeClock) -> None:
    clock = VirtualClock(real)
    before_ms, before_s = clock.now_ms(), clock.monotonic()

    await clock.sleep(90)
    await clock.sleep(-5)

    assert (clock.now_ms() - before_ms, clock.monotonic() - before_s) == (90_000, 90)
    assert real.now_ms() == before_ms


async def test_timers_that_a_sleep_passes_fire_in_their_order(real: FakeClock) -> None:
    clock = VirtualClock(real)
    fired: list[str] = []
    clock.call_later(20, lambda: fired.append("late"))
    clock.call_later(10, lambda: fired.append("early"))
    clock.call_later(60, lambda: fired.append("not yet"))

    await clock.sleep(30)

    assert fired == ["early", "late"]


async def test_a_timer_fires_once_whichever_time_reaches_it_first_unless_it_is_cancelled(real: FakeClock) -> None:
    clock = VirtualClock(real)
    fired: list[str] = []
    clock.call_later(10, lambda: fired.append("slept"))
    clock.call_later(40, lambda: fired.append("waited"))
    for seconds in (10, 40):
        clock.call_later(seconds, lambda: fired.append("no")).cancel()

    await clock.sleep(30)
    await real.turn(100)
    await clock.sleep(100)

    assert fired == ["slept", "waited"]
