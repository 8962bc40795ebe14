"""Whoever may not enter is told whose it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spyweb.errors import Refused
from spyweb.store.access import make_private, no_access, user_name

NOBODY = 65534


@contextmanager
def somebody_else(data_dir: Path) -> Iterator[None]:
    """Look at a directory as one who may not enter it: as another user where that can be, else through its mode."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    else:
        data_dir.chmod(0)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        else:
            data_dir.chmod(0o700)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "project" / "data"
    make_private(directory)
    return directory


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("names", [(), ("spyweb.db",), ("lost+found",)], ids=["empty", "restored", "mounted"])
def test_a_directory_open_to_others_is_closed(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).touch()
    tmp_path.chmod(0o755)

    make_private(tmp_path)

    assert mode(tmp_path) == 0o700


def test_a_directory_of_other_things_is_not_closed_to_those_who_use_it(tmp_path: Path) -> None:
    (tmp_path / "somebody's").touch()
    tmp_path.chmod(0o755)

    with pytest.raises(Refused, match="holds somebody's, which is not spyweb's"):
        make_private(tmp_path)
    assert mode(tmp_path) == 0o755


def test_the_owner_has_access_to_what_is_there_and_what_is_to_be_made(data_dir: Path) -> None:
    (data_dir / "spyweb.db").touch()

    assert no_access(data_dir) is None
    assert no_access(data_dir / "spyweb.db") is None
    assert no_access(data_dir / "absent" / "b") is None


def test_others_are_told_whose_it_is_in_one_line(data_dir: Path) -> None:
    owner = user_name(data_dir.stat().st_uid)
    with somebody_else(data_dir):
        error = no_access(data_dir / "spyweb.db")

    assert error is not None
    told = str(error)
    assert told.startswith(f"{data_dir}/spyweb.db: no access as ")
    assert owner in told
    assert "\n" not in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_others_are_told_how_to_become_the_owner(data_dir: Path) -> None:
    os.chown(data_dir, 1, 1)
    owner = user_name(1)
    data_dir.parent.chmod(0o755)
    with somebody_else(data_dir):
        error = no_access(data_dir)

    assert f"use `sudo -u {owner}`" in str(error) or "use `sudo -u root`" in str(error)


def test_a_disk_that_fails_hides_only_what_is_on_it(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = os.stat

    def fail(path: Path, **how: bool) -> os.stat_result:
        if Path(path).is_relative_to(data_dir):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", fail)
    assert no_access(data_dir / "spyweb.db") is None


def test_a_user_without_a_name_goes_by_the_number() -> None:
    assert user_name(4_000_000_000) == "4000000000"
