"""A hook armed from outside, on real coroutines; and the clocks of other threads."""

from __future__ import annotations

import threading
import time
from typing import cast

import pytest

from spyweb.lua.worker import limits
from spyweb.lua.worker.vm import Function, new_runtime

pytestmark = pytest.mark.skipif(not limits.CAN_ARM, reason="lupa's library exports no lua_sethook here")

# A coroutine whose hook counts how often it fires, registered but off, as the prelude registers its own.
COROUTINE = """
fired = 0
work = coroutine.create(function() while true do coroutine.yield(fired) end end)
debug.sethook(work, function() fired = fired + 1; debug.sethook(work) end, '', 0)
return string.format('%p', work)
"""


class Watched:
    def __init__(self) -> None:
        self._runtime = new_runtime()
        self.address = int(self._runtime.execute(COROUTINE), 16)

    def step(self) -> int:
        """Return how often the hook has fired, after one more step."""
        _, fired = self._runtime.execute("return coroutine.resume(work)")
        assert isinstance(fired, int)
        return fired


def test_an_armed_hook_fires_in_the_next_step_of_the_coroutine_at_that_address_alone() -> None:
    watched, other = Watched(), Watched()
    assert watched.step() == 0

    limits.arm(0)
    limits.arm(watched.address)

    assert (watched.step(), other.step()) == (1, 0)
    assert watched.step() == 1, "its function has switched it off"


def test_a_step_that_never_ends_is_reached_from_another_thread() -> None:
    runtime = new_runtime()
    entered, told = threading.Event(), list[object]()
    make: Function = runtime.execute("""return function(enter)
      work = coroutine.create(function() enter() while true do end end)
      debug.sethook(work, function() error('it was armed') end, '', 0)
      return string.format('%p', work)
    end""")
    address = int(make(entered.set), 16)
    stepping = threading.Thread(
        target=lambda: told.extend(runtime.execute("return coroutine.resume(work)")), daemon=True
    )
    stepping.start()
    assert entered.wait(10)

    limits.arm(address)
    stepping.join(10)

    assert not stepping.is_alive()
    assert b"it was armed" in cast("bytes", told[1])


def busy_for(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_the_clock_of_a_thread_counts_what_that_thread_uses() -> None:
    here = threading.get_ident()
    base = limits.cpu_since(here)

    busy_for(0.005)

    assert limits.cpu_since(here, base, time.monotonic()) >= 0.005
    assert limits.cpu_since(here, limits.cpu_since(here), time.monotonic()) < 0.005


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="a thread's clock can't be asked here")
def test_the_clock_of_a_thread_that_waits_stands_still() -> None:
    go_on, is_there = threading.Event(), threading.Event()

    def wait() -> None:
        is_there.set()
        go_on.wait(10)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert is_there.wait(10)
    assert waiting.ident
    busy_for(0.005)

    used = limits.cpu_since(waiting.ident)
    go_on.set()
    waiting.join(10)

    assert used < 0.005


def test_where_no_clock_can_be_asked_a_thread_counts_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    monkeypatch.setattr(time, "monotonic", lambda: 107.0)

    assert limits.cpu_since(1) == 107.0
    assert limits.cpu_since(1, 3.0, 100.0) == 7.0
