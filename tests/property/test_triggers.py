"""Whatever is written and however runs end: every change is handled, each key in the order of its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import JobId, Outcome, Overlap, Retry, Run, RunId
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.pool import FAILED, GUILTY, LOST, SUCCESS
from tests.fakes.triggered import TriggeredHarness, make_listener, on, triggered_harness

JOBS: dict[str, dict[str, object]] = {
    "all": {"on": on(), "retry": Retry(retries=2, delay_ms=1000, jitter=False)},
    "some": {"on": on(key="a*"), "overlap": Overlap.ALLOW, "retry": Retry(retries=1, delay_ms=0, jitter=False)},
    "other": {"on": on(scope="other"), "overlap": Overlap.REPLACE},
}
KEYS = ("a", "ab", "b")
ENDINGS = (SUCCESS, SUCCESS, FAILED, LOST, GUILTY)

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5)),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["stop", "crash"]), st.just(0)),
    ),
    max_size=40,
)


class DaemonLives:
    """Lives of a daemon over one store, one after another."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.written: dict[int, tuple[str, str]] = {}  # by event: scope and key
        self.started: list[RunId] = []  # in their order, over all lives

    async def live(self, steps: Iterator[Step], stack: AsyncExitStack) -> None:
        """Until the next stop or crash; a crashed harness stays as it is, and never says a word again."""
        t = await stack.enter_async_context(triggered_harness(self.store, self.clock))
        t.harness.pool.held |= {JobId(name) for name in JOBS}
        await t.settle(*(make_listener(name, **how) for name, how in JOBS.items()))
        stack.callback(lambda: self.started.extend(request.run for request in t.harness.pool.requests))
        for kind, number in steps:
            if kind in ("stop", "crash"):
                await self.end_life(t, kind)
                return
            await self.step(t, kind, number)
        t.harness.pool.held.clear()
        for run in t.harness.live.running():
            t.harness.pool.finish(run.id)
        await self.clock.turn(600)

    async def step(self, t: TriggeredHarness, kind: str, number: int) -> None:
        if kind == "write":
            scope, key = ("orders", "other")[number % 2], KEYS[number % 3]
            await t.write(key, number, scope=scope)
            self.written[len(self.written) + 1] = (scope, key)
        elif kind == "wait":
            await self.clock.turn(number)
        elif kind == "end" and (running := t.harness.live.running()):
            t.harness.pool.finish(running[number % len(running)].id, ENDINGS[number % len(ENDINGS)])
        await self.clock.turn()

    async def end_life(self, t: TriggeredHarness, kind: str) -> None:
        t.triggers.stop()
        if kind == "stop":
            await asyncio.gather(t.harness.runner.drain(0), self.clock.turn(1))
            return
        for task in list(t.harness.tasks._tasks):  # nothing of what it still does is recorded
            task.cancel()
        for job in t.harness.live:
            for _, timer in job.queue.delayed.values():
                timer.cancel()
        await self.clock.turn()


WANTED: dict[str, Callable[[str, str], bool]] = {
    "all": lambda _scope, _key: True,
    "some": lambda _scope, key: key.startswith("a"),
    "other": lambda scope, _key: scope == "other",
}


def expected(written: dict[int, tuple[str, str]], job: str) -> list[int]:
    return [event for event, change in written.items() if WANTED[job](*change)]


def events_in_order(runs: Sequence[Run]) -> list[int]:
    """The changes that these runs were for; attempts at one change, one after another, count once."""
    return [event for event, _ in groupby(run.trigger.change_event or 0 for run in runs)]


async def run_story(steps: list[Step]) -> None:
    lives = DaemonLives()
    left = iter(steps)
    count = 1 + sum(kind in ("stop", "crash") for kind, _ in steps)
    async with asyncio.timeout(20):
        for _ in range(count):
            async with AsyncExitStack() as stack:
                await lives.live(left, stack)
    recorded = {run.id: run for run in await lives.store.runs.list(limit=10_000)}
    runs = [recorded[run] for run in lives.started]
    assert set(recorded) == set(lives.started)
    assert await lives.store.events.wanted(1) == []
    assert await lives.store.runs.open() == []
    for job in JOBS:
        check(lives, job, [run for run in runs if run.job == job])
    assert [await lives.store.events.find(event) for event in lives.written] == [None] * len(lives.written)


def check(lives: DaemonLives, job: str, runs: list[Run]) -> None:
    handled = {run.trigger.change_event for run in runs}
    assert handled == set(expected(lives.written, job))
    for key in set(lives.written.values()):
        of_key = [run for run in runs if lives.written[run.trigger.change_event or 0] == key]
        order = events_in_order(of_key)
        assert order == sorted(order)
    for event in handled:
        first, *others = [run for run in runs if run.trigger.change_event == event]
        assert (first.attempt, first.trigger.type) == (1, "state")
        assert all(run.attempt > 1 for run in others), "started twice"
        assert all(run.outcome is not Outcome.SKIPPED for run in (first, *others))
        assert (others or [first])[-1].outcome is not Outcome.STOPPED, "cut short, and not begun again"


@pytest.mark.slow
@given(STEPS)
def test_every_change_is_handled_and_each_key_in_order(steps: list[Step]) -> None:
    asyncio.run(run_story(steps))
