"""Groups are made with their limits, and removed; tried on plain files, since few machines delegate one to a test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.programs import cgroup
from spyweb.programs.cgroup import CommandGroup, find_delegated


def test_a_group_that_is_not_delegated_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "self"
    own.write_text("12:pids:/elsewhere\n0::/system.slice/spyweb.service\n")
    group = tmp_path / "system.slice/spyweb.service"
    group.mkdir(parents=True)
    (group / "cgroup.procs").touch()
    assert find_delegated((tmp_path,), own) is None

    marks = {"user.delegate": b"1"}

    def getxattr(_path: Path, name: str) -> bytes:
        if name not in marks:
            raise OSError
        return marks[name]

    monkeypatch.setattr(os, "getxattr", getxattr)
    assert find_delegated((tmp_path / "unified", tmp_path), own) == group
    assert find_delegated((tmp_path / "unified", tmp_path), tmp_path / "no such") is None
    marks.clear()
    assert find_delegated((tmp_path,), own) is None


def test_a_group_has_its_limits_and_the_command_enters_it_through_its_nanny(tmp_path: Path) -> None:
    (tmp_path / "main").mkdir()
    (tmp_path / "exec").mkdir()
    group = CommandGroup.make(str(tmp_path / "exec/7"), memory=1 << 20, processes=5)
    folder = tmp_path / "exec/7"
    assert (folder / "memory.max").read_text() == "1048576"
    assert (folder / "pids.max").read_text() == "6"
    with group.entered():
        assert (folder / "cgroup.procs").read_text() == "0"
        assert not (tmp_path / "main/cgroup.procs").exists()
    assert (tmp_path / "main/cgroup.procs").read_text() == "0"
    group.kill()
    assert (folder / "cgroup.kill").read_text() == "1"
    for file in folder.iterdir():  # the kernel's files go with their folder
        file.unlink()
    group.remove()
    assert not folder.exists()


def test_no_group_is_no_bother() -> None:
    group = CommandGroup.make("", memory=1, processes=1)
    with group.entered():
        group.kill()
    group.remove()
    assert not group.is_in_force


def test_a_limit_that_can_not_be_set_leaves_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "REMOVAL_TRIES", 1)

    def refuse(_self: Path, _text: str) -> int:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(PermissionError):
        CommandGroup.make(str(tmp_path / "1"), memory=1, processes=0)
    assert not (tmp_path / "1").exists()


def test_what_an_earlier_daemon_has_left_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.procs").touch()
    (tmp_path / "exec/3/inner").mkdir(parents=True)
    monkeypatch.setattr(CommandGroup, "kill", lambda _: None)  # on plain files it would leave one
    assert cgroup.make_groups(tmp_path) == tmp_path / "exec"
    assert (tmp_path / "main").is_dir()
    assert not (tmp_path / "exec/3").exists()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids"
