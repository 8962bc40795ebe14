"""Real files, a real watcher: which changes it tells of."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.reload.watch import PAUSE, Watcher
from tests.fakes.clock import FakeClock
from tests.fakes.rights import bound_by_file_modes, needs_linux

BEGUN_MS = 100  # instead of 500
QUIET = 0.5  # seconds: longer than a watch takes to say that it has begun

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def watches_that_say_soon_that_they_have_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyweb.reload.watch.BEGUN_MS", BEGUN_MS)


class ReportedChanges:
    """The changes that a watcher reports."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.event.wait(), seconds)
        except TimeoutError:
            return False
        self.event.clear()
        return True

    async def nothing_more(self) -> None:
        while await self.within(QUIET):
            pass


@asynccontextmanager
async def watching(root: Path, clock: FakeClock | None = None) -> AsyncIterator[ReportedChanges]:
    changes = ReportedChanges()
    watcher = Watcher(root, [root / "data"], changes.event.set, clock or FakeClock())
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watcher.watch())
        probe = root / "probe.lua"
        while not await changes.within(0.2):  # the watcher says nothing of being ready
            probe.write_text(str(asyncio.get_running_loop().time()))
        await changes.nothing_more()
        yield changes
        task.cancel()


def not_utf_8(folder: Path, ending: str = "") -> Path:
    return folder / os.fsdecode(b"\xff" + ending.encode())


@needs_linux
async def test_a_folder_that_may_not_be_entered_hides_no_other_one(tmp_path: Path) -> None:
    for folder in ("jobs", "jobs/closed", "jobs/open"):
        (tmp_path / folder).mkdir()
    (tmp_path / "jobs" / "closed").chmod(0)
    with bound_by_file_modes():
        async with watching(tmp_path) as changes:
            (tmp_path / "jobs" / "open" / "init.lua").write_text("x")
            assert await changes.within(5)


async def test_it_tells_of_files_in_folders_old_and_new_and_not_of_data_or_logs(tmp_path: Path) -> None:
    for folder in ("jobs", "data"):
        (tmp_path / folder).mkdir()
    async with watching(tmp_path) as changes:
        (tmp_path / "data" / "spyweb.db").write_text("x")
        (tmp_path / "jobs" / "hooks.log").write_text("x")
        (tmp_path / "jobs" / ".hidden.lua").write_text("x")
        (tmp_path / "jobs" / "prices.csv").write_text("x")
        (tmp_path / "jobs" / "watch-response.html").write_text("x")
        assert not await changes.within(QUIET)
        (tmp_path / "jobs" / "a.lua").write_text("x")
        assert await changes.within(5)
        (tmp_path / "lib").mkdir()
        assert await changes.within(5)
        await changes.nothing_more()
        (tmp_path / "lib" / "tools.lua").write_text("x")
        assert await changes.within(5)


def make_anew(jobs: Path) -> None:
    shutil.rmtree(jobs)
    jobs.mkdir()


def put_another_in_place(jobs: Path) -> None:
    newer = jobs.with_name(".newer")
    newer.mkdir()
    jobs.rename(jobs.with_name(".older"))
    newer.rename(jobs)


def link_to_another(jobs: Path) -> None:
    jobs.with_name(".rel2").mkdir()
    newer = jobs.with_name(".link")
    newer.symlink_to(".rel2")
    newer.replace(jobs)


def replace_the_target(jobs: Path) -> None:
    put_another_in_place(jobs.resolve())


def replace_the_root(jobs: Path) -> None:
    root = jobs.parent
    put_another_in_place(root)
    jobs.mkdir()


REPLACEMENTS = (make_anew, put_another_in_place, link_to_another, replace_the_target, replace_the_root)


async def test_a_folder_that_is_replaced_is_watched_anew(tmp_path: Path) -> None:
    blind_after = await asyncio.gather(*(blinded_by(tmp_path / replace.__name__, replace) for replace in REPLACEMENTS))
    assert [name for name in blind_after if name] == []


async def blinded_by(folder: Path, replace: Callable[[Path], None]) -> str | None:
    """Return the name of a replacement after which changes are not reported any more."""
    root, released = folder / "project", folder / "released"
    root.mkdir(parents=True)
    released.mkdir()
    if replace in (link_to_another, replace_the_target):
        (root / "jobs").symlink_to(released)
    else:
        (root / "jobs").mkdir()
    async with watching(root) as changes:
        replace(root / "jobs")
        replacing_is_told = await changes.within(5)
        await changes.nothing_more()
        (root / "jobs" / "a.lua").write_text("x")
        saving_is_told = await changes.within(2)
    return None if replacing_is_told and saving_is_told else replace.__name__


@needs_linux
async def test_a_folder_whose_name_is_not_utf_8_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    not_utf_8(tmp_path).mkdir()
    not_utf_8(tmp_path / "jobs").mkdir()
    async with watching(tmp_path) as changes:
        (tmp_path / "jobs" / "a.lua").write_text("x")
        assert await changes.within(5)


@needs_linux
async def test_no_other_file_system_is_entered_and_nothing_outside_by_a_link(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (root / "jobs" / "a", root / "jobs" / ".git", root / "lib", elsewhere / "below"):
        folder.mkdir(parents=True)
    (root / "jobs" / "a" / "nas").symlink_to(elsewhere)
    (root / "jobs" / "a" / "up").symlink_to("..")
    (root / "jobs" / "a" / "lib").symlink_to(root / "lib")
    (root / "linked").symlink_to(elsewhere)
    (root / "proc").symlink_to("/proc")
    found = Watcher(root, [], print, FakeClock())._find_folders()
    expected = [".", "jobs", "jobs/a", "lib", "linked", "linked/below"]
    assert sorted(os.path.relpath(folder, root) for folder in found) == expected


@needs_linux
async def test_a_root_that_is_gone_for_a_while_is_watched_again(tmp_path: Path) -> None:
    root, clock = tmp_path / "project", FakeClock()
    root.mkdir()
    async with watching(root, clock) as changes:
        shutil.rmtree(root)
        assert await changes.within(5)
        root.mkdir()
        (root / "jobs").mkdir()
        await clock.turn(PAUSE)
        await changes.nothing_more()
        (root / "jobs" / "a.lua").write_text("x")
        assert await changes.within(5)


@needs_linux
async def test_a_watch_that_fails_begins_again_after_a_pause_and_leaves_no_thread_and_no_open_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "jobs").mkdir()
    clock = FakeClock()
    with capture_logs() as lines:
        async with watching(tmp_path, clock) as changes:
            for _ in range(2):
                not_utf_8(tmp_path / "jobs", ".lua").touch()
                assert await changes.within(5)
                not_utf_8(tmp_path / "jobs", ".lua").unlink()
                await clock.turn(PAUSE)
                assert await changes.within(5), "something may have changed meanwhile"
            (tmp_path / "jobs" / "a.lua").write_text("x")
            assert await changes.within(5)
    assert len(lines) == 1, "warned once, though it happened again"
    await changes.nothing_more()
    assert threads_that_watch() == []
    assert inotify_descriptors() == []


def threads_that_watch() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("watch files")]


def inotify_descriptors() -> list[Path]:
    return [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and "inotify" in os.readlink(fd)]
