"""A daemon that is built and not started: that it is whole, at rest, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from spyweb.daemon import build
from spyweb.daemon.build import Daemon, build_daemon
from spyweb.daemon.serve import Options, read_settings
from spyweb.errors import StoreClosed
from spyweb.subjects.health.service import HealthService
from spyweb.subjects.jobs.service import JobService
from tests.fakes.clock import FakeClock

SCRIPT = '-- /// job\n-- every = "1s"\n-- ///\nlog.info("ran")\n'


@asynccontextmanager
async def built(root: Path, config: str = "") -> AsyncIterator[Daemon]:
    (root / "config.toml").write_text(f"[daemon]\nworkers = 1\n{config}")
    (root / "data").mkdir(exist_ok=True)  # which the lock makes, that `serve` holds
    async with AsyncExitStack() as stack:
        yield await build_daemon(stack, read_settings(Options(root=root)), FakeClock())


async def test_nothing_moves_before_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.lua").write_text(SCRIPT)
    async with built(tmp_path) as daemon:
        await cast(FakeClock, daemon.runtime.clock).turn()
        assert not list(daemon.runtime.live)
        assert await daemon.runtime.store.runs.latest() == {}
        assert not daemon.chores
        assert not daemon.stop.is_set()


async def test_its_parts_share_what_they_work_on(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.lua").write_text(SCRIPT)
    async with built(tmp_path) as daemon:
        await daemon.reloader.load({})
        (job,) = daemon.runtime.live
        assert [view.id for view in daemon.services[JobService].jobs()] == [job.id]
        assert daemon.services[HealthService].health().jobs["idle"] == 1


async def test_all_of_it_is_taken_down_with_the_stack(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with built(tmp_path) as daemon:
        (worker,) = daemon.runtime.pool.stats().workers
        assert Path(f"/proc/{worker.pid}").exists()
    with pytest.raises(StoreClosed):
        await daemon.runtime.store.runs.latest()
    assert not Path(f"/proc/{worker.pid}").exists()
    assert asyncio.all_tasks() == before


async def test_a_build_that_fails_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    async def fail(_stack: AsyncExitStack, runtime: object) -> None:
        opened.append(runtime)
        raise OSError("no port left")

    monkeypatch.setattr(build, "open_server", fail)
    with pytest.raises(OSError, match="no port left"):
        async with built(tmp_path):
            pass
    (runtime,) = opened
    with pytest.raises(StoreClosed):
        await runtime.store.runs.latest()  # type: ignore[attr-defined]


async def test_settings_that_are_read_again_keep_the_port_that_scripts_were_told(tmp_path: Path) -> None:
    async with built(tmp_path, "[server]\nport = 0\n") as daemon:
        first = daemon.runtime.settings.server.port
        (tmp_path / "config.toml").write_text("[server]\nport = 0\n\n[state]\nhistory = { state = 3 }\n")
        await daemon.reloader.rescan()
        assert first
        assert daemon.reloader.settings.state.history
        assert daemon.reloader.settings.server.port == first


async def test_past_versions_are_kept_by_the_settings_as_they_are_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.lua").write_text(SCRIPT)
    async with built(tmp_path) as daemon:
        kept: list[object] = []
        monkeypatch.setattr(daemon.runtime.store.values, "keep_history", kept.append)
        await daemon.reloader.load({})
        (tmp_path / "config.toml").write_text('[daemon]\nworkers = 1\n[state]\nhistory = { "state" = 3 }\n')
        await daemon.reloader.rescan()
    assert [len(cast("dict[str, object]", rules)) for rules in kept] == [0, 1]
