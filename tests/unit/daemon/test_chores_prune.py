"""What is old is deleted by a clock that does not leap: a wrong one would delete everything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from spyweb.daemon.chores import SteadyTime, prune
from spyweb.model import Outcome, RunId, RunState, Trigger
from spyweb.ops.files.artifacts import Artifacts
from spyweb.outbox.sender import OutboxSender
from spyweb.settings import load_settings
from spyweb.settings.units import DAY_MS
from spyweb.store.model.incidents import SubjectNow
from spyweb.store.model.runs import Change, End, NewRun
from tests.fakes.changes import PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import AT_MS, AT_ONCE, fail, succeed
from tests.fakes.memory_store import MemoryStore
from tests.fakes.task_rows import row

MONTH_S = 30 * 24 * 3600.0


async def test_it_goes_with_the_clock() -> None:
    clock = FakeClock()
    steady = SteadyTime(clock)
    await clock.turn(3600)
    assert steady.now_ms() == clock.now_ms()


async def test_a_clock_that_is_months_ahead_does_not_count_until_it_has_been_so_for_a_day() -> None:
    clock = FakeClock()
    steady = SteadyTime(clock)
    await clock.turn(600)
    true_ms = clock.now_ms()
    clock.jump(3 * MONTH_S)
    assert steady.now_ms() == true_ms
    await clock.turn(600)
    assert steady.now_ms() == true_ms + 600_000
    clock.jump(-3 * MONTH_S)
    assert steady.now_ms() == clock.now_ms()

    clock.jump(3 * MONTH_S)
    steady.now_ms()
    await clock.turn(DAY_MS / 1000 - 1)
    assert steady.now_ms() < clock.now_ms()
    await clock.turn(1)
    assert steady.now_ms() == clock.now_ms()


async def test_a_clock_that_is_ahead_when_the_daemon_starts_does_not_count_either() -> None:
    clock = FakeClock()
    known_ms = clock.now_ms() - int(MONTH_S * 1000)
    steady = SteadyTime(clock, known_ms)
    await clock.turn(60)
    assert steady.now_ms() == known_ms + 60_000


async def test_a_clock_that_is_set_back_counts_at_once() -> None:
    clock = FakeClock()
    steady = SteadyTime(clock, clock.now_ms() + 5)
    assert steady.now_ms() == clock.now_ms()
    clock.jump(-MONTH_S)
    assert steady.now_ms() == clock.now_ms()
    await clock.turn(60)
    assert steady.now_ms() == clock.now_ms()


async def test_an_hour_is_no_leap() -> None:
    clock = FakeClock()
    steady = SteadyTime(clock)
    clock.jump(3600)
    assert steady.now_ms() == clock.now_ms()


class FakeOutboxSender:
    async def prune(self, older_than_ms: int) -> int:
        return older_than_ms


@pytest.mark.parametrize(
    ("runs", "left"),
    [
        ("keep = 100", [4, 3, 2, 1]),
        ("keep = 2", [4, 3]),
        ("keep_tasks = 1", [4, 3, 2, 1]),
        ('keep_for = "25m"', [4, 3]),
    ],
)
async def test_the_history_is_cut_to_what_the_settings_say(tmp_path: Path, runs: str, left: list[int]) -> None:
    (tmp_path / "config.toml").write_text(f"[runs]\n{runs}\n")
    settings = load_settings(tmp_path, environ={}, flags={})
    clock = FakeClock()
    store = MemoryStore(clock)
    for _ in range(4):
        (run,) = await store.runs.record(Change(new=[NewRun(job=PRICES, state=RunState.RUNNING, trigger=Trigger())]))
        assert run is not None
        await store.runs.record(Change(end=[End(run=run, ended_ms=clock.now_ms(), outcome=Outcome.SUCCESS)]))
        await store.tasks.add(run, [row("a")])
        (tmp_path / f"artifacts/prices/{run}").mkdir(parents=True)
        await clock.turn(600)

    artifacts = Artifacts(tmp_path, tmp_path / "artifacts")
    await prune(store, cast("OutboxSender", FakeOutboxSender()), artifacts, settings, clock.now_ms())

    assert [run.id for run in await store.runs.list(PRICES)] == left
    if settings.runs.keep_for_ms > 3_600_000:
        kept = left[: settings.runs.keep_tasks]
        assert sorted(await store.tasks.of_runs([RunId(run) for run in left]), reverse=True) == kept
        assert sorted(map(int, os.listdir(tmp_path / "artifacts/prices")), reverse=True) == left


async def test_incidents_that_are_over_are_kept_for_90_days_and_open_ones_for_good(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    for job in ("backup", "prices"):
        await fail(store.incidents, job)
    await succeed(store.incidents, "backup")
    await store.incidents.plan([], {"job:backup": SubjectNow(policy=AT_ONCE), "job:prices": SubjectNow(policy=AT_ONCE)})
    settings = load_settings(tmp_path, environ={}, flags={})
    artifacts = Artifacts(tmp_path, tmp_path / "artifacts")
    for now_ms, left in ((AT_MS + 90 * DAY_MS, 2), (AT_MS + 90 * DAY_MS + 1, 1)):
        await prune(store, cast("OutboxSender", FakeOutboxSender()), artifacts, settings, now_ms)
        assert len(await store.incidents.list()) == left
