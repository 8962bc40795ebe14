"""One daemon per data directory, and the second is told about the first."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.errors import LockHeld, NoAccess, StoreError
from spyweb.settings.sections import LOCK_NAME
from spyweb.store.access import user_name
from spyweb.store.lock import hold_database, hold_lock
from tests.fakes.clock import FakeClock

USER = user_name(os.geteuid())


def test_the_file_says_who_holds_it_to_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / LOCK_NAME
    with hold_lock(path.parent, root=tmp_path, clock=FakeClock()):
        assert json.loads(path.read_text()) == {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "user": USER,
            "started": "2026-01-01T00:00:00Z",
            "root": str(tmp_path),
        }
        assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_second_holder_is_told_who_has_it(tmp_path: Path) -> None:
    with hold_lock(tmp_path, clock=FakeClock()), pytest.raises(LockHeld) as refused:
        hold_lock(tmp_path)

    assert str(refused.value) == f"{tmp_path} is in use by pid {os.getpid()} ({USER}) since 2026-01-01T00:00:00Z"


ELSEWHERE = '{"pid": 7, "host": "elsewhere", "user": "ann", "started": "2026", "root": "/"}'


@pytest.mark.parametrize(
    ("told", "holder"), [(ELSEWHERE, "pid 7 (ann) on elsewhere since 2026"), ("", "another spyweb")]
)
def test_a_holder_on_another_machine_or_that_has_not_said_who_it_is_holds(
    tmp_path: Path, told: str, holder: str
) -> None:
    with hold_lock(tmp_path):
        (tmp_path / LOCK_NAME).write_text(told)
        with pytest.raises(LockHeld, match=re.escape(f"in use by {holder}")):
            hold_lock(tmp_path)


def test_a_file_left_behind_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_text('{"pid": 1, "a long text that is no longer true": 1}')
    with hold_lock(tmp_path):
        assert json.loads((tmp_path / LOCK_NAME).read_text())["pid"] == os.getpid()


def test_a_released_lock_can_be_taken_and_releasing_twice_is_harmless(tmp_path: Path) -> None:
    first = hold_lock(tmp_path)
    first.release()
    first.release()

    with hold_lock(tmp_path):
        pass


def test_a_data_directory_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "data").touch()

    with pytest.raises(StoreError, match=f"{tmp_path}/data: "):
        hold_lock(tmp_path / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_foreign_data_directory_is_no_access(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "data"):
        pass
    os.seteuid(65534)
    try:
        with pytest.raises(NoAccess, match="it belongs to root; use `sudo -u root`"):
            hold_lock(tmp_path / "data")
    finally:
        os.seteuid(0)


def test_a_project_whose_path_is_not_utf8_can_be_held(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    with hold_lock(root / "data"):
        assert "caf\\\\xe9" in (root / "data" / LOCK_NAME).read_text()


def test_a_lock_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    with hold_lock(tmp_path, clock=FakeClock()) as lock:
        assert not lock.restore()
        (tmp_path / LOCK_NAME).unlink()

        assert lock.restore()

        with pytest.raises(LockHeld, match=f"in use by pid {os.getpid()}"):
            hold_lock(tmp_path)
        assert not lock.restore()


def test_a_lock_file_whose_place_another_has_taken_is_left_to_that(tmp_path: Path) -> None:
    with hold_lock(tmp_path) as first:
        (tmp_path / LOCK_NAME).unlink()
        with hold_lock(tmp_path), pytest.raises(LockHeld):
            first.restore()
        assert first.restore()


def test_a_lock_file_that_is_removed_while_it_is_being_taken_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    removed: list[int] = []

    def flock(file: int, operation: int) -> None:
        real(file, operation)
        if not removed:
            removed.append(file)
            (tmp_path / LOCK_NAME).unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold_lock(tmp_path), pytest.raises(LockHeld):
        hold_lock(tmp_path)


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["a symbolic link", "a hard link"])
def test_a_database_has_one_holder_whatever_path_leads_to_it(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    path, other = tmp_path / "spyweb.db", tmp_path / "other" / "same.db"
    other.parent.mkdir()
    lock = hold_database(path, clock=FakeClock())
    link(path, other)

    with pytest.raises(LockHeld, match=f"{other} is in use by"):
        hold_database(other)
    lock.release()
    lock.release()
    hold_database(other).release()


def test_who_holds_a_database_is_told_with_the_project(tmp_path: Path) -> None:
    path = tmp_path / "spyweb.db"
    with hold_database(path, clock=FakeClock()), pytest.raises(LockHeld) as refused:
        hold_database(path)

    assert path.with_name("spyweb.db-lock").stat().st_mode & 0o777 == 0o600
    since = "since 2026-01-01T00:00:00Z"
    assert str(refused.value) == f"{path} is in use by pid {os.getpid()} ({USER}) {since}, of the project {tmp_path}"


def test_a_database_stays_held_without_the_file_that_says_by_whom(tmp_path: Path) -> None:
    path = tmp_path / "spyweb.db"
    with hold_database(path):
        path.with_name("spyweb.db-lock").unlink()
        with pytest.raises(LockHeld, match=r"spyweb.db is in use by another spyweb"):
            hold_database(path)


def test_the_locks_of_sqlite_are_none_of_its_concern(tmp_path: Path) -> None:
    path = tmp_path / "spyweb.db"
    lock = hold_database(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("CREATE TABLE t (x)")
        connection.execute("COMMIT")
    lock.release()
