"""Calls that come after so many seconds, unless they are dropped."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from spyweb.lua.deadlines import Deadlines
from tests.fakes.clock import FakeClock


async def test_a_call_comes_at_its_own_time_and_once() -> None:
    clock, called = FakeClock(), list[tuple[str, float]]()
    deadlines = Deadlines(clock)
    deadlines.add(1, 10, lambda: called.append(("first", clock.monotonic())))
    clock.advance(4)
    deadlines.add(2, 10, lambda: called.append(("second", clock.monotonic())))
    deadlines.add(3, 1, lambda: called.append(("short", clock.monotonic())))
    clock.advance(100)
    assert called == [("short", 5), ("first", 10), ("second", 14)]
    assert clock.pending == 0


async def test_what_was_dropped_never_comes_and_dropping_twice_is_nothing() -> None:
    clock, called = FakeClock(), list[int]()
    deadlines = Deadlines(clock)
    for number in range(3):
        deadlines.add(number, 10, partial(called.append, number))
    for number in (0, 1, 1, 9):
        deadlines.drop(number, 10)
    deadlines.drop(2, 5)
    clock.advance(10)
    assert called == [2]


async def test_a_line_has_one_timer_however_long_it_is() -> None:
    clock = FakeClock()
    deadlines = Deadlines(clock)
    for number in range(100):
        deadlines.add(number, 30, lambda: None)
    assert clock.pending == 1


async def test_a_call_may_drop_another_that_is_due_and_add_its_own_number_again() -> None:
    clock, called = FakeClock(), list[str]()
    deadlines = Deadlines(clock)

    def first() -> None:
        called.append("first")
        deadlines.drop(2, 5)
        deadlines.add(1, 5, lambda: called.append("again"))

    deadlines.add(1, 5, first)
    deadlines.add(2, 5, lambda: called.append("dropped"))
    clock.advance(5)
    assert called == ["first"]
    clock.advance(5)
    assert called == ["first", "again"]


@given(st.lists(st.tuples(st.sampled_from([1, 5, 30]), st.integers(0, 8), st.none() | st.integers(0, 40)), max_size=30))
def test_each_is_called_when_its_own_timer_would_have_called_it(
    plan: list[tuple[int, int, int | None]],
) -> None:
    """Each: how long it waits, how long after the one before it was added, and after how long it is dropped."""
    clock, called, expected = FakeClock(), set[tuple[int, float]](), set[tuple[int, float]]()
    deadlines, now = Deadlines(clock), 0

    def note(number: int) -> None:
        called.add((number, clock.monotonic()))

    for number, (seconds, pause, dropped_after) in enumerate(plan):
        clock.advance(pause)
        now += pause
        deadlines.add(number, seconds, partial(note, number))
        if dropped_after is not None and dropped_after != seconds:
            clock.call_later(dropped_after + 0.5, partial(deadlines.drop, number, seconds))
        if dropped_after is None or dropped_after >= seconds or dropped_after + 0.5 > seconds:
            expected.add((number, now + seconds))
    clock.advance(1000)
    assert called == expected
