"""What a data directory remembers of its database, and what that is good for when the database has gone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.model import Durability, Value
from spyweb.settings.sections import MARKER
from spyweb.store import marker as marker_module
from spyweb.store.marker import Marker
from spyweb.store.protocol import GLOBAL, Store
from spyweb.store.sqlite.checkpoints import Checkpoints
from spyweb.store.sqlite.file_identity import FileIdentity
from spyweb.store.sqlite.store import connect_to, open_store
from tests.fakes.clock import FakeClock


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a daemon that was killed, with one write in the log alone."""
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
async def killed(data: Path, tmp_path: Path) -> AsyncIterator[Path]:
    running = tmp_path / "running"
    running.mkdir()
    store = await opened(running)
    await store.values.set(GLOBAL, b"k", b"1")
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
    await store.close()

    assert told(data) == {"database": "spyweb.db", "user_db": False, "open": None, "unmerged": None}


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


async def test_what_a_killed_daemon_left_is_taken_up(killed: Path) -> None:
    assert await value(killed) == b"1"


async def test_rows_that_are_in_no_log_let_none_be_expected(data: Path) -> None:
    await (await opened(data)).close()
    path = data / "spyweb.db"
    marker = Marker(data, path, FakeClock())
    checkpoints = Checkpoints(path, FileIdentity(path), partial(connect_to, path, "rw"), marker)
    checkpoints.note(1)  # of a temporary table
    checkpoints.close()

    assert told(data)["open"] is not None
    assert told(data)["unmerged"] is None


@pytest.mark.parametrize("companions", [["-wal"], ["-wal", "-shm"]])
@pytest.mark.parametrize("read_only", [False, True])
async def test_without_the_log_that_held_the_last_writes_it_is_refused(
    killed: Path, companions: list[str], read_only: bool
) -> None:
    for companion in companions:
        (killed / f"spyweb.db{companion}").unlink()
    before = (killed / "spyweb.db").read_bytes()

    with pytest.raises(StoreIncomplete, match=r"its log spyweb\.db-wal is gone") as refused:
        await opened(killed, read_only=read_only)

    assert "goes on with what the database itself holds" in str(refused.value)
    assert (killed / "spyweb.db").read_bytes() == before
    assert not (killed / "spyweb.db-wal").exists()


async def test_a_backup_that_was_put_in_its_place_needs_no_log(killed: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    store = await open_store(backup, clock=FakeClock())
    await store.values.set(GLOBAL, b"k", b"older")
    await store.close()
    for companion in ("-wal", "-shm"):
        (killed / f"spyweb.db{companion}").unlink()
    shutil.copy(backup, killed / "spyweb.db")

    assert await value(killed) == b"older"


async def test_a_log_that_another_program_has_merged_is_not_missed(killed: Path) -> None:
    store = await open_store(killed / "spyweb.db", clock=FakeClock())  # it knows no marker
    await store.close()
    assert not (killed / "spyweb.db-wal").exists()

    assert await value(killed) == b"1"


async def test_a_log_that_was_cut_off_while_it_was_open_is_missed_after_a_stop_too(data: Path) -> None:
    store = await opened(data)
    await store.values.set(GLOBAL, b"k", b"1")
    os.truncate(data / "spyweb.db-wal", 0)
    with pytest.raises(StoreCorrupt):
        await store.values.set(GLOBAL, b"k", b"2")
    await store.close()

    with pytest.raises(StoreIncomplete, match="with what was written last"):
        await opened(data)


async def test_after_a_stop_no_log_is_expected(data: Path) -> None:
    store = await opened(data)
    await store.values.set(GLOBAL, b"k", b"1")
    await store.close()

    assert await value(data) == b"1"


async def test_a_log_that_a_power_cut_tore_is_taken_as_it_is_where_commits_are_not_synced(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (killed / "spyweb.db-wal").write_bytes(bytes(8192))
    with pytest.raises(StoreIncomplete, match="is damaged"):
        await opened(killed, durability=Durability.NORMAL)
    monkeypatch.setattr(marker_module, "uptime_ms", lambda: 1_000)

    with pytest.raises(StoreIncomplete, match="is damaged"):
        await opened(killed, durability=Durability.FULL)
    assert await value(killed, durability=Durability.NORMAL) is None


async def test_where_it_can_not_be_written_the_store_goes_on(data: Path) -> None:
    (data / MARKER).mkdir()
    path = data / "spyweb.db"
    await (await open_store(path, clock=FakeClock())).close()
    store = await opened(data)
    await store.values.set(GLOBAL, b"k", b"1")
    await store.close()


async def test_tables_of_scripts_are_remembered_too(data: Path) -> None:
    marker = Marker(data, data / "spyweb.db", FakeClock())
    assert marker.known_user_db() is None
    marker.note_opened()
    marker.note_user_db()
    marker.note_closed()

    again = Marker(data, data / "spyweb.db", FakeClock())
    again.note_opened()
    assert again.known_user_db() is not None
