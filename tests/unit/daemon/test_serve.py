"""What the daemon does every now and then, on the virtual clock; and a start that is broken off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.retention import SteadyTime
from spyweb.daemon.serve import PRUNE_SECONDS, Daemon, keep_files, prune, repeat, unless_set, warn_of_descriptors
from spyweb.errors import LockHeld, NoAccess, SpywebError, StoreError
from spyweb.model import JobId, Outcome, RunId, RunState
from spyweb.settings import Settings, load_settings
from spyweb.settings.sections import LOCK_NAME
from spyweb.store.lock import hold_lock
from spyweb.store.memory.memory import MemoryStore
from spyweb.store.protocol import Change, End, NewRun, Store
from spyweb.web.serve import PrivateSocket
from tests.fakes.clock import FakeClock

PRICES = JobId("prices")


@dataclass
class FakeCourier:
    async def prune(self, older_than_ms: int) -> int:
        return older_than_ms


@dataclass
class FakeParts:
    clock: FakeClock
    store: Store
    courier: FakeCourier


@dataclass
class FakeReloader:
    settings: Settings


@dataclass
class FakeDaemon:
    """What pruning needs of one."""

    parts: FakeParts
    reloader: FakeReloader


def read(root: Path, runs: str) -> Settings:
    (root / "config.toml").write_text(f"[runs]\n{runs}\n")
    return load_settings(root, environ={}, flags={})


async def run_once(store: Store, clock: FakeClock) -> None:
    (run,) = await store.runs.record(Change(new=[NewRun(job=PRICES, state=RunState.RUNNING, trigger={})]))
    assert run is not None
    await store.runs.record(Change(end=[End(run=run, ended_ms=clock.now_ms(), outcome=Outcome.SUCCESS)]))


async def kept(store: Store) -> list[RunId]:
    return [run.id for run in await store.runs.list(PRICES)]


@pytest.mark.parametrize("runs", ["keep = 2", 'keep_for = "25m"'])
async def test_the_history_is_cut_every_ten_minutes_to_what_the_settings_say_then(tmp_path: Path, runs: str) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    daemon = FakeDaemon(FakeParts(clock, store, FakeCourier()), FakeReloader(read(tmp_path, "keep = 100")))
    async with asyncio.TaskGroup() as tasks:
        pruning = tasks.create_task(
            repeat(clock, PRUNE_SECONDS, partial(prune, cast("Daemon", daemon), SteadyTime(clock)))
        )
        for _ in range(4):
            await run_once(store, clock)
            await clock.turn(PRUNE_SECONDS)
        assert await kept(store) == [4, 3, 2, 1]

        daemon.reloader.settings = read(tmp_path, runs)
        await clock.turn(PRUNE_SECONDS / 2)
        assert await kept(store) == [4, 3, 2, 1]
        await clock.turn(PRUNE_SECONDS / 2)
        assert await kept(store) == ([4, 3] if runs == "keep = 2" else [4])
        pruning.cancel()


@pytest.mark.parametrize("error", [StoreError("the disk is full"), NoAccess("spyweb.db: no access as me")])
async def test_what_the_store_refuses_is_done_the_next_time(error: SpywebError) -> None:
    clock, tried = FakeClock(), []

    async def refuse_at_first() -> None:
        tried.append(clock.now_ms())
        if len(tried) == 1:
            raise error

    async with asyncio.TaskGroup() as tasks:
        repeating = tasks.create_task(repeat(clock, 60, refuse_at_first))
        await clock.turn(180)
        repeating.cancel()

    assert len(tried) == 3


async def test_a_start_comes_to_its_end_unless_a_stop_is_asked_for() -> None:
    stop, story, is_held = asyncio.Event(), [], asyncio.Event()

    async def load() -> None:
        story.append("began")
        try:
            await is_held.wait()
            story.append("ended")
        except asyncio.CancelledError:
            story.append("broken off")
            raise

    asyncio.get_running_loop().call_soon(stop.set)
    assert not await unless_set(stop, load())
    is_held.set()
    assert await unless_set(asyncio.Event(), load())
    assert story == ["began", "broken off", "began", "ended"]


async def test_a_start_that_fails_tells_its_error_as_it_is() -> None:
    async def load() -> None:
        raise StoreError("no room")

    with pytest.raises(StoreError, match="no room"):
        await unless_set(asyncio.Event(), load())


def test_that_hardly_any_descriptors_are_left_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [100, 63, 10, 100, 1]
    monkeypatch.setattr("spyweb.daemon.serve.descriptors.left", lambda: left.pop(0))
    was_scarce = False
    with capture_logs() as told:
        for _ in range(5):
            was_scarce = warn_of_descriptors(was_scarce)
    assert [line["left"] for line in told] == [63, 1]


@dataclass
class FakeSocket:
    """The private socket; whether somebody has removed it."""

    path: Path
    is_removed: bool = False

    async def restore(self) -> bool:
        was_removed, self.is_removed = self.is_removed, False
        return was_removed


async def test_a_lock_file_and_a_socket_that_were_removed_are_made_again_and_told(tmp_path: Path) -> None:
    private = FakeSocket(tmp_path / "spyweb.sock", is_removed=True)
    with hold_lock(tmp_path) as lock, capture_logs() as told:
        (tmp_path / LOCK_NAME).unlink()
        for _ in range(2):
            await keep_files(lock, cast("PrivateSocket", private))
        with pytest.raises(LockHeld):
            hold_lock(tmp_path)

    assert [line["event"] for line in told] == [
        "the lock file was removed, and is made again",
        "the socket was removed, and is made again",
    ]


async def test_a_lock_file_that_can_not_be_made_again_is_told_and_nothing_else_happens(tmp_path: Path) -> None:
    private = FakeSocket(tmp_path / "spyweb.sock")
    with hold_lock(tmp_path) as lock, capture_logs() as told:
        (tmp_path / LOCK_NAME).unlink()
        with hold_lock(tmp_path):
            await keep_files(lock, cast("PrivateSocket", private))

    assert told[0]["log_level"] == "error"
    assert "is in use by" in told[0]["reason"]
