"""Where the daemon's socket is."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from spyweb.errors import NoAccess
from spyweb.settings.socket_path import LIMIT, claim_socket, find_socket, fits, release_socket


def leave_a_socket(path: Path) -> None:
    """As a daemon does that was killed."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("d")
    assert fits(path / "spyweb.sock")
    return path


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    return path


@pytest.fixture
def deep(tmp_path: Path, runtime: Path) -> Path:
    """A data directory whose socket's path is too long."""
    assert fits(runtime / "spyweb" / f"{16 * 'x'}.sock")
    path = tmp_path / ("d" * LIMIT)
    path.mkdir()
    return path


def test_the_socket_is_in_the_data_directory_where_its_path_fits(short: Path) -> None:
    assert claim_socket(short) == find_socket(short) == short / "spyweb.sock"


def test_a_path_too_long_gets_a_short_name_that_is_found_by_a_link(deep: Path) -> None:
    claimed = claim_socket(deep)
    assert fits(claimed)
    assert claimed.parent.stat().st_mode & 0o777 == 0o700
    assert find_socket(deep) == claimed


def test_the_short_name_is_the_same_each_time_and_another_for_another_directory(deep: Path) -> None:
    other = deep.with_name("e" * LIMIT)
    other.mkdir()
    first = claim_socket(deep)
    leave_a_socket(first)
    assert claim_socket(deep) == first
    assert not first.exists()
    assert claim_socket(other) != first


def test_the_client_finds_the_socket_whatever_its_own_runtime_directory_is(
    deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = claim_socket(deep)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert find_socket(deep) == claimed


def test_in_a_copy_of_a_data_directory_the_socket_of_the_original_is_not_found(deep: Path) -> None:
    claimed = claim_socket(deep)
    leave_a_socket(claimed)
    copy = deep.with_name("c" * LIMIT)
    shutil.copytree(deep, copy, symlinks=True)
    assert not find_socket(copy).exists()
    assert claim_socket(copy) == find_socket(copy)
    release_socket(copy)
    assert claimed.exists()


def test_a_data_directory_whose_link_leads_in_a_circle_has_no_socket(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("data")
    assert not os.path.lexists(find_socket(tmp_path / "data"))


def test_without_a_runtime_directory_the_users_own_temporary_one_serves(
    deep: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep / "absent"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("t")))
    assert claim_socket(deep).parent.name.startswith("spyweb-")


def test_a_directory_that_others_can_enter_is_not_trusted(deep: Path, runtime: Path) -> None:
    (runtime / "spyweb").mkdir(mode=0o755)
    with pytest.raises(NoAccess, match="only this user"):
        claim_socket(deep)


def test_a_link_in_place_of_the_directory_is_not_trusted(deep: Path, runtime: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (runtime / "spyweb").symlink_to(elsewhere)
    with pytest.raises(NoAccess, match="only this user"):
        claim_socket(deep)


def test_a_file_of_somebody_elses_is_not_removed(short: Path) -> None:
    (short / "spyweb.sock").write_text("mine")
    with pytest.raises(NoAccess, match="in the way"):
        claim_socket(short)
    assert (short / "spyweb.sock").read_text() == "mine"


def test_releasing_removes_socket_and_link_and_may_be_done_twice(deep: Path) -> None:
    claimed = claim_socket(deep)
    leave_a_socket(claimed)
    release_socket(deep)
    release_socket(deep)
    assert not claimed.exists()
    assert not (deep / "spyweb.sock").is_symlink()
