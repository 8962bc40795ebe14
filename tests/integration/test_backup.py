"""A backup while others write, and processes that are killed while they make or restore one."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.model import Outcome, Run
from spyweb.settings.load import load_settings
from spyweb.settings.sections import LOCK_NAME, USER_DB, Settings
from spyweb.settings.units import HOUR_MS, MINUTE_MS
from spyweb.store.marker import Marker
from spyweb.store.model.entries import GLOBAL, STATE
from spyweb.store.sqlite.backup import PAGES, make_backup, restore
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.backup_child import NEW
from tests.fakes.clock import START_MS
from tests.fakes.command import spyweb
from tests.fakes.project import Project
from tests.fakes.store_child import COUNTER, WRITERS
from tests.fakes.weeks import open_weeks

pytestmark = pytest.mark.slow

BALLAST = [(b"ballast-%d" % number, b"b" * 500_000) for number in range(20)]  # several slices of a copy


def project_in(root: Path) -> Settings:
    (root / "data").mkdir(parents=True)
    return load_settings(root, environ={}, flags={})


async def opened(settings: Settings) -> Store:
    path = settings.store.path
    return await open_store(path, clock=RealClock(), marker=Marker(path.parent, path, RealClock()))


def ignore(count: int) -> None:
    pass


class Between:
    """Has a writing process commit more between two slices of a copy."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        self.slices = 0

    def __call__(self, count: int) -> None:
        assert self._child.stdout
        self.slices += 1
        for _ in range(2 * WRITERS):  # what was acknowledged before is read first
            assert self._child.stdout.readline()


async def test_a_backup_has_what_was_stored_at_one_moment_whatever_is_written_meanwhile(tmp_path: Path) -> None:
    here, there, file = project_in(tmp_path / "here"), project_in(tmp_path / "there"), tmp_path / "b.zip"
    store = await opened(here)
    for key, value in BALLAST:
        await store.values.set(GLOBAL, key, value)
    await store.close()

    slices = back_up_while_a_process_writes(here, file)
    restore(file, there, None, ignore, ignore, is_forced=False)

    assert slices > 2 * sum(len(value) for _, value in BALLAST) / (4096 * PAGES)
    store = await opened(there)
    counts = [await count_of(store, f"w-{writer}") for writer in range(WRITERS)]
    counted = await store.values.get(GLOBAL, COUNTER)
    assert isinstance(counted, bytes)
    assert min(counts) > 0
    assert sum(counts) - WRITERS <= int(counted) <= sum(counts)  # each writer stores a key, then counts it
    for key, value in BALLAST:
        assert await store.values.get(GLOBAL, key) == value
    await store.close()


def back_up_while_a_process_writes(settings: Settings, file: Path) -> int:
    command = [sys.executable, "-m", "tests.fakes.store_child", "write", str(settings.store.path), "w"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        between = Between(child)
        between(0)
        make_backup(file, settings, None, RealClock(), ignore, between)
        child.kill()
    return between.slices


async def count_of(store: Store, name: str) -> int:
    """Return how many keys a writer has stored, none of which is missing."""
    number = 0
    while await store.values.get(GLOBAL, f"{name}-{number + 1}".encode()) is not None:
        number += 1
    assert await store.values.get(GLOBAL, f"{name}-{number + 2}".encode()) is None
    return number


async def mark(settings: Settings, text: str) -> None:
    """Store a text in both databases."""
    store = await opened(settings)
    await store.values.set(GLOBAL, b"k", text.encode())
    await store.close()
    with closing(sqlite3.connect(settings.daemon.data_dir / USER_DB)) as connection:
        connection.executescript(f"CREATE TABLE IF NOT EXISTS k (v); DELETE FROM k; INSERT INTO k VALUES ('{text}')")


async def marks(settings: Settings) -> set[object]:
    store = await opened(settings)
    found = await store.values.get(GLOBAL, b"k")
    await store.close()
    assert isinstance(found, bytes)
    with closing(sqlite3.connect(settings.daemon.data_dir / USER_DB)) as connection:
        return {found.decode(), *(value for (value,) in connection.execute("SELECT v FROM k"))}


@pytest.fixture
async def project(tmp_path: Path) -> Settings:
    """A project with a backup that is older than what it has stored."""
    settings = project_in(tmp_path / "project")
    await mark(settings, "before")
    make_backup(tmp_path / "b.zip", settings, None, RealClock(), ignore, ignore)
    await mark(settings, "now")
    return settings


def killed_at_each_step(what: str, project: Settings, tmp_path: Path) -> list[Path]:
    """Return the projects of processes that were killed, a step later each; the last one was not."""
    results = tmp_path / "results"
    words = [what, str(project.root), str(tmp_path / "b.zip"), str(results)]
    subprocess.run([sys.executable, "-m", "tests.fakes.backup_child", *words], check=True)
    return sorted(results.iterdir(), key=lambda place: int(place.name))


async def test_a_killed_backup_leaves_a_whole_one_or_none(project: Settings, tmp_path: Path) -> None:
    found = []
    for place in killed_at_each_step("make", project, tmp_path):
        settings = load_settings(place, environ={}, flags={})
        found.append((place / NEW).exists())
        if not found[-1]:
            make_backup(place / NEW, settings, None, RealClock(), ignore, ignore)
        restore(place / NEW, project_in(place / "there"), None, ignore, ignore, is_forced=False)
        assert await marks(load_settings(place / "there", environ={}, flags={})) == {"now"}
        assert {path.name for path in place.glob(".*/*")} <= {LOCK_NAME}  # that may be left behind a whole one

    assert len(found) > 10
    assert found == sorted(found)
    assert found[-1]


async def test_a_killed_restore_leaves_all_as_it_was_or_all_as_the_backup_has_it(
    project: Settings, tmp_path: Path
) -> None:
    found: list[set[object]] = []
    for place in killed_at_each_step("restore", project, tmp_path):
        settings = load_settings(place, environ={}, flags={})
        if len(found) % 4:  # a command, or a daemon, that comes next
            assert (await asyncio.to_thread(spyweb, "state", "set", "next", "1", root=place)).code == 0
        else:
            async with open_weeks(place, START_MS):
                pass
        found.append(await marks(settings))
        left = {path.name.partition(".before")[0] for path in settings.daemon.data_dir.iterdir()}
        assert left <= {"spyweb.db", "user.db", "database.json", "spyweb.lock", "spyweb.db-lock", "user.db-lock"}

    assert len(found) > 10
    assert found == [{"now"}] * found.count({"now"}) + [{"before"}] * found.count({"before"})
    assert found[-1] == {"before"}


SCRIPT = """
state.increment("count", 1)
db_exec("CREATE TABLE IF NOT EXISTS rows (id)")
db_exec("INSERT INTO rows VALUES (1)")
"""


def make_hourly(root: Path) -> Path:
    project = Project(root)
    project.save("config.toml", '[permissions]\ndb = true\nstate = ["*"]\n[daemon]\ntimezone = "UTC"\n')
    for misfire in ("skip", "once"):
        project.job(misfire, SCRIPT, f'cron = "0 * * * *"\nmisfire = "{misfire}"')
    return root


def hours_of(runs: list[Run], outcome: Outcome) -> list[int]:
    """Return the hours whose due times are on record with this outcome, as often as they are."""
    return sorted(
        (at_ms - START_MS) // HOUR_MS
        for run in runs
        if run.outcome is outcome and run.due_ms is not None
        for at_ms in range(run.due_ms, (run.last_due_ms or run.due_ms) + 1, HOUR_MS)
    )


def count_rows(root: Path) -> int:
    with closing(sqlite3.connect(root / "data" / "user.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])


async def test_a_restored_project_runs_no_due_time_twice_and_records_what_it_missed(tmp_path: Path) -> None:
    here, there, file = make_hourly(tmp_path / "here"), make_hourly(tmp_path / "there"), tmp_path / "b.zip"
    async with open_weeks(here, START_MS + MINUTE_MS) as weeks:
        await weeks.pass_until(START_MS + 5 * HOUR_MS)
        assert (await asyncio.to_thread(spyweb, "backup", str(file), root=here)).code == 0
        await weeks.pass_until(START_MS + 6 * HOUR_MS)  # the backup does not know of this hour

    assert spyweb("restore", str(file), root=there).code == 0
    async with open_weeks(there, START_MS + 8 * HOUR_MS + MINUTE_MS) as weeks:
        await weeks.pass_until(START_MS + 10 * HOUR_MS)

        ran = {"skip": [1, 2, 3, 4, 5, 9, 10], "once": [1, 2, 3, 4, 5, 8, 9, 10]}
        for misfire, hours in ran.items():
            runs = await weeks.runs(misfire)
            assert hours_of(runs, Outcome.SUCCESS) == hours
            assert hours_of(runs, Outcome.MISSED) == sorted(set(range(1, 11)) - set(hours))
        assert await weeks.daemon.runtime.store.values.get(STATE, b"count") == sum(map(len, ran.values()))
    assert count_rows(there) == sum(map(len, ran.values()))
