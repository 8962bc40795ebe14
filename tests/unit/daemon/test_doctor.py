"""What `spyweb doctor` finds, whatever else is broken."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from spyweb.clock import RealClock
from spyweb.daemon import doctor
from spyweb.daemon.doctor import Finding, Status
from tests.fakes.certificates import self_signed


def examine(root: Path, *parts: str) -> list[Finding]:
    """Return what the checks of these parts find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "CHECKS", [check for check in doctor.CHECKS if check.__name__[1:] in parts])
        return list(doctor.examine(root, RealClock(), lambda: None))


def problems(root: Path, *parts: str) -> Mapping[str, str]:
    """Return the texts of what is not fine, by code."""
    return {each.code: each.text for each in examine(root, *parts) if each.status != "ok"}


def test_a_project_before_its_first_start_is_fine(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    found = examine(tmp_path, "libraries", "settings", "jobs", "access", "limits", "workers", "database", "channels")
    doubts = [each for each in found if each.status != "ok" and each.part != "sandbox"]
    assert doubts == []
    assert os.listdir(tmp_path) == ["jobs"]


def test_what_is_wrong_in_files_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[runs]\nkeap = 3\n")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/a.toml").write_text('check = "http"\n')
    found = problems(tmp_path, "settings", "jobs")
    assert found["settings"].startswith("config.toml:2: runs.keap: unknown key; did you mean")
    assert found["jobs"].startswith("jobs/a.toml")


def test_a_damaged_page_of_the_database_is_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data/user.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 4000,)] * 200)
    before = path.read_bytes()
    assert problems(tmp_path, "database") == {}
    with path.open("r+b") as file:
        file.seek(len(before) // 2)
        file.write(b"\xff" * 8192)
    assert problems(tmp_path, "database").keys() == {"database"}


def test_a_database_that_is_missing_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/spyweb.db-wal").write_bytes(b"x" * 100)
    (found,) = examine(tmp_path, "database")
    assert (found.status, found.code) == ("error", "database")
    assert "restore a backup" in found.remedy


def test_a_postgresql_that_is_away_is_told_with_its_own_remedy(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[store]\nurl = "postgresql://me@127.0.0.1:1/db"\n')
    assert problems(tmp_path, "database").keys() == {"postgres"}


def test_a_data_directory_that_others_may_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    assert problems(tmp_path, "access").keys() == {"access"}
    (tmp_path / "data").chmod(0o700)
    assert problems(tmp_path, "access") == {}


@pytest.mark.parametrize(("free", "status"), [(50 << 20, "error"), (500 << 20, "warning"), (5 << 30, "ok")])
def test_a_disk_that_is_nearly_full_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: Status
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: type("Usage", (), {"free": free}))
    assert examine(tmp_path, "disk")[0].status == status


@pytest.mark.parametrize(("is_set", "status"), [(True, "ok"), (None, "ok"), (False, "warning")])
def test_a_clock_that_nothing_sets_is_doubtful(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_set: bool | None, status: Status
) -> None:
    monkeypatch.setattr(doctor, "is_set_by_ntp", lambda: is_set)
    assert [each.status for each in examine(tmp_path, "clock")] == [status]


@pytest.mark.parametrize(("days", "status"), [(-2, "error"), (5, "warning"), (90, "ok"), (None, "error")])
def test_a_certificate_that_expires_is_told(tmp_path: Path, days: int | None, status: Status) -> None:
    now = datetime.now(UTC)
    pem = b"" if days is None else self_signed("a.test", now - timedelta(99), now + timedelta(days or 0, 60))
    (tmp_path / "own.pem").write_bytes(pem)
    (tmp_path / "config.toml").write_text('[server]\ntls_cert = "own.pem"\ntls_key = "own.pem"\n')
    assert [each.status for each in examine(tmp_path, "certificate")] == [status]


def test_libraries_that_do_not_fit_are_named() -> None:
    assert doctor.why_unfit(Requirement("msgspec>=0.20")) == ""
    assert "is installed, but >=99 is needed" in doctor.why_unfit(Requirement("msgspec>=99"))
    assert doctor.why_unfit(Requirement("no-such-library>=1")) == "no-such-library is missing"


def test_a_check_that_fails_itself_does_not_keep_the_others_from_working(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(doctor, "is_set_by_ntp", fail)
    found = examine(tmp_path, "disk", "clock", "access", "channels")
    assert [(each.part, each.status) for each in found if each.part != "disk"] == [
        ("access", "ok"), ("clock", "warning"), ("channels", "ok"),
    ]  # fmt: skip
    assert found[-2].text == "this could not be checked: RuntimeError('no such luck')"
