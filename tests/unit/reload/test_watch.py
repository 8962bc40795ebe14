"""Real files, a real watcher: which changes it tells of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spyweb.reload.watch import Watcher

pytestmark = pytest.mark.slow


class Told:
    """Counts what the watcher tells."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.event.wait(), seconds)
        except TimeoutError:
            return False
        self.event.clear()
        return True


async def watch(root: Path, told: Told, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
    watcher = Watcher(root, [root / "data"], told.event.set)
    task = tasks.create_task(watcher.watch())
    probe = root / "probe.lua"
    while not await told.within(0.2):  # the watcher says nothing of being ready
        probe.write_text(str(asyncio.get_running_loop().time()))
    while await told.within(0.3):
        pass
    return task


async def test_it_tells_of_files_in_folders_old_and_new_and_not_of_data_or_logs(tmp_path: Path) -> None:
    for folder in ("jobs", "data"):
        (tmp_path / folder).mkdir()
    told = Told()
    async with asyncio.TaskGroup() as tasks:
        task = await watch(tmp_path, told, tasks)
        (tmp_path / "data" / "spyweb.db").write_text("x")
        (tmp_path / "jobs" / "hooks.log").write_text("x")
        (tmp_path / "jobs" / ".hidden.lua").write_text("x")
        assert not await told.within(0.4)
        (tmp_path / "jobs" / "a.lua").write_text("x")
        assert await told.within(5)
        (tmp_path / "lib").mkdir()
        assert await told.within(5)
        while await told.within(0.3):
            pass
        (tmp_path / "lib" / "tools.lua").write_text("x")
        assert await told.within(5)
        task.cancel()
