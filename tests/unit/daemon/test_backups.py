"""Backups by `[backup]`: at each due time, also at one that passed while no daemon ran; older ones go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest

from spyweb.alerts.signs import OF_A_PART
from spyweb.clock import Clock, RealClock
from spyweb.daemon import chores
from spyweb.daemon.build import Daemon
from spyweb.daemon.chores import BACKUP_LOOK_S, FORM, back_up, keep_backups
from spyweb.errors import StoreClosed
from spyweb.settings.load import load_settings
from spyweb.settings.sections import Settings
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.store.sqlite.backup import Count, Manifest
from spyweb.store.sqlite.store import open_store
from spyweb.subjects.health.views import ChoreHealth, find_all_problems, find_parts, find_warnings
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.daemon_service import make_vitals

T = TypeVar("T")
THREE = START_MS + 3 * HOUR_MS  # START_MS is a midnight
HOUR_S, DAY_S = 3600.0, 86_400.0


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    """Settings of a project with a database."""
    (tmp_path / "config.toml").write_text('[backup]\ncron = "0 3 * * *"\nkeep = 2\n[daemon]\ntimezone = "UTC"\n')
    (tmp_path / "data").mkdir()
    await (await open_store(tmp_path / "data" / "spyweb.db", clock=RealClock())).close()
    return load_settings(tmp_path, environ={}, flags={})


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake clock does not wait for threads."""

    async def call(function: Callable[..., T], *arguments: object) -> T:
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", call)


class Kept:
    """A daemon that keeps backups, since one o'clock."""

    def __init__(self, settings: Settings) -> None:
        self.clock = FakeClock(START_MS + HOUR_MS)
        self.chores: dict[str, ChoreHealth] = {}
        self.reloader = SimpleNamespace(settings=settings)
        runtime = SimpleNamespace(settings=settings, clock=self.clock)
        self.daemon = cast("Daemon", SimpleNamespace(runtime=runtime, reloader=self.reloader, chores=self.chores))
        self._folder = settings.root / "backups"

    @property
    def made(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir()) if self._folder.exists() else []

    @property
    def chore(self) -> ChoreHealth:
        return self.chores["backup"]


@asynccontextmanager
async def kept(settings: Settings) -> AsyncIterator[Kept]:
    found = Kept(settings)
    task = asyncio.ensure_future(keep_backups(found.daemon))
    try:
        await found.clock.turn()
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def named(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(FORM)


@pytest.mark.usefixtures("no_threads")
async def test_a_backup_is_made_at_once_then_at_each_due_time_and_so_many_are_kept(settings: Settings) -> None:
    async with kept(settings) as found:
        assert found.made == [named(START_MS + HOUR_MS)]
        (settings.root / "backups" / "spyweb-mine.zip").touch()

        await found.clock.turn(2 * HOUR_S - 1)
        assert len(found.made) == 2
        await found.clock.turn(1)
        assert found.made == [named(START_MS + HOUR_MS), named(THREE), "spyweb-mine.zip"]
        await found.clock.turn(DAY_S)
        assert found.made == [named(THREE), named(THREE + DAY_MS), "spyweb-mine.zip"]

        assert (found.chore.last_at_ms, found.chore.next_at_ms) == (THREE + DAY_MS, THREE + 2 * DAY_MS)
        assert (found.chore.every_s, found.chore.error) == (DAY_S, "")


@pytest.mark.usefixtures("no_threads")
async def test_after_a_start_it_goes_on_where_the_backups_are(settings: Settings) -> None:
    folder = settings.root / "backups"
    folder.mkdir()
    for at_ms in (THREE - DAY_MS, THREE + 300 * DAY_MS):  # the latter by a clock that was ahead
        (folder / named(at_ms)).touch()

    async with kept(settings) as found:
        assert len(found.made) == 2
        assert (found.chore.last_at_ms, found.chore.next_at_ms) == (THREE - DAY_MS, THREE)
    (folder / named(THREE - DAY_MS)).rename(folder / named(THREE - 2 * DAY_MS))
    async with kept(settings) as found:
        assert named(START_MS + HOUR_MS) in found.made  # a due time had passed while no daemon ran


@pytest.mark.usefixtures("no_threads")
async def test_a_failure_opens_an_incident_and_the_next_due_time_is_tried(settings: Settings) -> None:
    path = settings.store.path
    path.rename(path.with_name("away"))
    async with kept(settings) as found:
        await found.clock.turn(HOUR_S)
        vitals = make_vitals(chores=[found.chore])

        assert "there is no database" in found.chore.error
        assert [each.code for each in find_warnings(vitals)] == ["backup"]
        assert find_parts(vitals)["backup"].text.startswith("the last backup that was due could not be made")
        assert "backup" in OF_A_PART
        assert find_all_problems(vitals) == []  # jobs run

        path.with_name("away").rename(path)
        await found.clock.turn(HOUR_S)
        assert found.made == [named(THREE)]
        assert find_warnings(make_vitals(chores=[found.chore])) == []


@pytest.mark.usefixtures("no_threads")
async def test_it_follows_config_toml(settings: Settings) -> None:
    def with_cron(cron: str) -> Settings:
        return replace(settings, backup=replace(settings.backup, cron=cron))

    async with kept(with_cron("")) as found:
        assert (found.made, found.chores) == ([], {})
        found.reloader.settings = with_cron("61 * * * *")
        await found.clock.turn(BACKUP_LOOK_S)
        assert found.chore.error.startswith("[backup]: bad minute")
        found.reloader.settings = settings
        await found.clock.turn(BACKUP_LOOK_S)
        assert (len(found.made), found.chore.error) == (1, "")
        found.reloader.settings = with_cron("")
        await found.clock.turn(BACKUP_LOOK_S)
        assert found.chores == {}


@pytest.mark.usefixtures("no_threads")
async def test_it_waits_for_a_disk_that_is_away(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> list[int]:
        raise OSError(5, "Input/output error", str(folder))

    with monkeypatch.context() as away:
        away.setattr(chores, "list_made", refuse)
        async with kept(settings) as found:
            assert found.chore.error == f"[backup]: [Errno 5] Input/output error: '{settings.root / 'backups'}'"
            away.undo()
            await found.clock.turn(BACKUP_LOOK_S)
            assert (len(found.made), found.chore.error) == (1, "")


async def test_what_a_killed_daemon_has_left_is_removed(settings: Settings) -> None:
    left = settings.root / "backups" / f".{named(START_MS)}.unfinished"
    left.mkdir(parents=True)
    (left / "spyweb.db").touch()

    await back_up(settings, settings.backup, FakeClock())

    assert [path.name for path in left.parent.iterdir()] == [named(START_MS)]


async def test_the_thread_ends_when_the_daemon_does(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), Event()
    loop = asyncio.get_running_loop()

    def work(
        file: Path, settings: Settings, key: bytes | None, clock: Clock, expect: Count, advance: Count
    ) -> Manifest:
        loop.call_soon_threadsafe(begun.set)
        try:
            while True:
                advance(1)
        except StoreClosed:
            ended.set()
            raise

    monkeypatch.setattr(chores, "make_backup", work)
    task = asyncio.ensure_future(back_up(settings, settings.backup, FakeClock()))
    await begun.wait()
    task.cancel()

    with suppress(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 20)
