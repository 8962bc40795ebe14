"""What a data directory remembers of its database, and what that is good for when a part of it is missing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.model import Durability, Value
from spyweb.settings.sections import MARKER
from spyweb.store import marker as marker_module
from spyweb.store.marker import LastCommit, Marker
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.clock import FakeClock
from tests.fakes.tables import files_beside


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
async def killed(data: Path, tmp_path: Path) -> AsyncIterator[Path]:
    """The data directory of a daemon that was killed, with three commits in the log alone."""
    running = tmp_path / "running"
    running.mkdir()
    await (await opened(running)).close()
    store = await opened(running)
    for number in range(3):
        await store.values.set(GLOBAL, b"k", b"%d" % number)
    for file in running.iterdir():
        shutil.copy2(file, data)
    yield data
    await store.close()


async def opened(data: Path, **options: object) -> Store:
    path = data / "spyweb.db"
    return await open_store(path, clock=FakeClock(), marker=Marker(data, path, FakeClock()), **options)  # type: ignore[arg-type]


async def value(data: Path, **options: object) -> Value:
    store = await opened(data, **options)
    try:
        return await store.values.get(GLOBAL, b"k")
    finally:
        await store.close()


def told(data: Path) -> dict[str, object]:
    found = json.loads((data / MARKER).read_text())
    assert isinstance(found, dict)
    return found


async def test_it_says_who_has_the_database_open_until_that_is_closed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_module, "uptime_ms", lambda: 5_000)
    store = await opened(data)
    assert told(data)["open"] == {
        "pid": os.getpid(),
        "since": "2026-01-01T00:00:00Z",
        "booted_ms": FakeClock().now_ms() - 5_000,
    }
    await store.values.set(GLOBAL, b"k", b"1")
    await store.values.get(GLOBAL, b"k")
    await store.close()

    commit = told(data).pop("commit")
    assert isinstance(commit, dict)
    assert (commit["number"], commit["at_ms"]) == (2, FakeClock().now_ms())
    assert told(data) == {"database": "spyweb.db", "user_db": False, "open": None, "commit": commit}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("is_empty", [False, True])
async def test_a_directory_that_has_had_a_database_does_not_get_a_new_one_by_itself(
    data: Path, is_empty: bool, read_only: bool
) -> None:
    await (await opened(data)).close()
    (data / "spyweb.db").unlink()
    if is_empty:
        (data / "spyweb.db").touch()

    with pytest.raises(StoreIncomplete, match=f"and {data} has had one: put it back; or `spyweb start --repair`"):
        await opened(data, read_only=read_only)


async def test_a_marker_that_can_not_be_read_still_says_that_there_was_one(data: Path) -> None:
    (data / MARKER).touch()

    with pytest.raises(StoreIncomplete, match="has had one"):
        await opened(data)


async def test_another_url_is_another_database(data: Path) -> None:
    await (await opened(data)).close()
    path = data / "other.db"

    store = await open_store(path, clock=FakeClock(), marker=Marker(data, path, FakeClock()))
    await store.close()
    assert told(data)["database"] == "other.db"


def log_of(data: Path) -> Path:
    return data / "spyweb.db-wal"


def overwrite(file: Path, start: int, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(content)


LOSSES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "cut in half": lambda log: os.truncate(log, log.stat().st_size // 2),
    "empty": lambda log: os.truncate(log, 0),
    "its head": lambda log: overwrite(log, 0, b"\xff" * 32),
    "its first page": lambda log: overwrite(log, 32 + 24 + 100, b"\x55" * 1000),
    "all of it": lambda log: overwrite(log, 0, os.urandom(log.stat().st_size)),
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
async def test_a_database_without_commits_that_were_acknowledged_is_refused_and_nothing_is_touched(
    killed: Path, lose: Callable[[Path], object], read_only: bool
) -> None:
    lose(log_of(killed))
    (killed / "spyweb.db-shm").unlink()
    before = files_beside(killed)

    with pytest.raises(
        StoreIncomplete, match=r"its log spyweb\.db-wal .*, and with it [1234] commits?.*, the last at 20"
    ):
        await opened(killed, read_only=read_only)

    assert files_beside(killed) == before


async def test_what_is_missing_is_told_exactly(killed: Path) -> None:
    frame = 24 + 4096
    size = log_of(killed).stat().st_size
    os.truncate(log_of(killed), size - frame)  # of the last commit

    with pytest.raises(StoreIncomplete) as refused:
        await opened(killed)

    moment = "2026-01-01T00:00:00Z"
    assert str(refused.value) == (
        f"{killed}/spyweb.db: its log spyweb.db-wal was cut off or is damaged, and with it 1 commit after {moment}, "
        f"the last at {moment}: put it back; or `spyweb start --repair` continues without the missing part"
    )


async def test_what_nobody_was_told_is_not_missed(killed: Path) -> None:
    """The end of the log is torn as a power failure leaves it: a commit that was still being written."""
    with log_of(killed).open("ab") as log:
        log.write(b"\x55" * 3000)

    assert await value(killed) == b"2"


async def test_a_commit_that_was_not_noted_yet_is_no_loss(killed: Path) -> None:
    """A kill between the commit and its note: the database is ahead."""
    found = told(killed)
    assert isinstance(found["commit"], dict)
    found["commit"]["number"] -= 1
    (killed / MARKER).write_text(json.dumps(found))

    assert await value(killed) == b"2"


async def test_a_backup_that_was_put_in_its_place_is_opened_and_what_it_lacks_is_told(
    killed: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup.db"
    store = await open_store(backup, clock=FakeClock())
    await store.values.set(GLOBAL, b"k", b"older")
    await store.close()
    for companion in ("-wal", "-shm"):
        (killed / f"spyweb.db{companion}").unlink()
    shutil.copy(backup, killed / "spyweb.db")

    with capture_logs() as logs:
        assert await value(killed) == b"older"
    (line,) = (line for line in logs if line["log_level"] == "error")
    assert line["missing"] == (
        "2 commits after 2026-01-01T00:00:00Z, the last at 2026-01-01T00:00:00Z: an older database was put in its place"
    )
    with capture_logs() as logs:
        assert await value(killed) == b"older"
    assert logs == []


async def test_a_log_that_another_program_has_merged_is_not_missed(killed: Path) -> None:
    with closing(sqlite3.connect(killed / "spyweb.db")) as other:
        other.execute("SELECT count(*) FROM entry").fetchone()
    assert not log_of(killed).exists()

    assert await value(killed) == b"2"


async def test_a_log_that_was_cut_off_while_it_was_open_is_missed_after_a_stop_too(data: Path) -> None:
    store = await opened(data)
    await store.values.set(GLOBAL, b"k", b"1")
    os.truncate(data / "spyweb.db-wal", 0)
    with pytest.raises(StoreCorrupt):
        await store.values.set(GLOBAL, b"k", b"2")
    await store.close()

    with pytest.raises(
        StoreIncomplete, match=r"its log spyweb\.db-wal was removed, and with it 2 commits, the last at"
    ):
        await opened(data)


async def test_commits_that_a_power_failure_took_before_they_were_synced_are_told_and_no_reason_to_refuse(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_of(killed).write_bytes(bytes(8192))
    with pytest.raises(StoreIncomplete, match="was cut off or is damaged"):
        await opened(killed, durability=Durability.NORMAL)
    monkeypatch.setattr(marker_module, "uptime_ms", lambda: 1_000)

    with pytest.raises(StoreIncomplete, match="was cut off or is damaged"):
        await opened(killed, durability=Durability.FULL)
    with capture_logs() as logs:
        assert await value(killed, durability=Durability.NORMAL) is None
    assert str(logs[0]["missing"]).endswith(": the machine went down before they were synced")


async def test_where_it_can_not_be_written_the_store_goes_on(data: Path) -> None:
    (data / MARKER).mkdir()
    path = data / "spyweb.db"
    await (await open_store(path, clock=FakeClock())).close()
    store = await opened(data)
    await store.values.set(GLOBAL, b"k", b"1")
    await store.close()


async def test_tables_of_scripts_are_remembered_too(data: Path) -> None:
    marker = Marker(data, data / "spyweb.db", FakeClock())
    assert not marker.has_user_db
    marker.note_opened(LastCommit(0, 0))
    marker.note_user_db()
    marker.note_closed()

    again = Marker(data, data / "spyweb.db", FakeClock())
    again.note_opened(LastCommit(0, 0))
    assert again.has_user_db
