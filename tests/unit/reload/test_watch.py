"""Real files, a real watcher: which changes it tells of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spyweb.reload.watch import Watcher
from tests.fakes.rights import bound_by_file_modes, needs_linux

QUIET = 1.2  # seconds: longer than a watch takes to say that it has begun

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
    while await told.within(QUIET):
        pass
    return task


@needs_linux
async def test_a_folder_that_may_not_be_entered_hides_no_other_one(tmp_path: Path) -> None:
    for folder in ("jobs", "jobs/closed", "jobs/open"):
        (tmp_path / folder).mkdir()
    (tmp_path / "jobs" / "closed").chmod(0)
    told = Told()
    with bound_by_file_modes():
        async with asyncio.TaskGroup() as tasks:
            task = await watch(tmp_path, told, tasks)
            (tmp_path / "jobs" / "open" / "init.lua").write_text("x")
            assert await told.within(5)
            task.cancel()


async def test_it_tells_of_files_in_folders_old_and_new_and_not_of_data_or_logs(tmp_path: Path) -> None:
    for folder in ("jobs", "data"):
        (tmp_path / folder).mkdir()
    told = Told()
    async with asyncio.TaskGroup() as tasks:
        task = await watch(tmp_path, told, tasks)
        (tmp_path / "data" / "spyweb.db").write_text("x")
        (tmp_path / "jobs" / "hooks.log").write_text("x")
        (tmp_path / "jobs" / ".hidden.lua").write_text("x")
        (tmp_path / "jobs" / "prices.csv").write_text("x")
        (tmp_path / "jobs" / "watch-response.html").write_text("x")
        assert not await told.within(QUIET)
        (tmp_path / "jobs" / "a.lua").write_text("x")
        assert await told.within(5)
        (tmp_path / "lib").mkdir()
        assert await told.within(5)
        while await told.within(QUIET):
            pass
        (tmp_path / "lib" / "tools.lua").write_text("x")
        assert await told.within(5)
        task.cancel()
