from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spyweb.files import Forbidden
from spyweb.logs import files
from spyweb.logs.files import KEPT, append

FOLDER = "jobs/prices"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 10)


def contents(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((root / FOLDER).iterdir())}


def test_the_folder_is_made_at_first_need(tmp_path: Path) -> None:
    append(tmp_path, FOLDER, "hooks.log", b"a\n")
    append(tmp_path, FOLDER, "hooks.log", b"b\n")
    assert contents(tmp_path) == {"hooks.log": "a\nb\n"}


@pytest.mark.usefixtures("small")
def test_a_full_file_gives_way_and_five_older_ones_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        append(tmp_path, FOLDER, "hooks.log", f"line {number}\n".encode())
    found = contents(tmp_path)
    assert list(found) == ["hooks.log", *(f"hooks.log.{number}" for number in range(1, KEPT + 1))]
    assert found["hooks.log"] == "line 7\n"
    assert found["hooks.log.1"] == "line 6\n"
    assert found["hooks.log.5"] == "line 2\n"


@pytest.mark.usefixtures("small")
def test_more_than_a_whole_file_at_once_is_kept_together(tmp_path: Path) -> None:
    append(tmp_path, FOLDER, "hooks.log", b"x" * 50)
    assert contents(tmp_path) == {"hooks.log": "x" * 50}


def test_a_folder_linked_out_of_the_project_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (root / "jobs").mkdir(parents=True)
    (root / FOLDER).symlink_to(outside)
    with pytest.raises(Forbidden, match="leads out"):
        append(root, FOLDER, "hooks.log", b"a\n")
    assert not list(outside.iterdir())


def test_a_file_linked_elsewhere_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "hooks.log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links") as caught:
        append(tmp_path, FOLDER, "hooks.log", b"a\n")
    assert caught.value.errno == errno.ELOOP
    assert victim.read_text() == "untouched"


def test_a_folder_linked_inside_the_project_is_followed(tmp_path: Path) -> None:
    (tmp_path / "teams/blue").mkdir(parents=True)
    (tmp_path / "jobs").symlink_to("teams/blue")
    append(tmp_path, FOLDER, "hooks.log", b"a\n")
    assert (tmp_path / "teams/blue/prices/hooks.log").read_text() == "a\n"


def test_a_pipe_or_device_in_place_of_the_file_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    os.mkfifo(tmp_path / FOLDER / "hooks.log")
    with pytest.raises(OSError, match=r"hooks\.log"):
        append(tmp_path, FOLDER, "hooks.log", b"a\n")


def test_a_disk_that_fills_up_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, FOLDER, "hooks.log", b"whole\n")
    really_write, calls = os.write, iter([3])

    def write_three_bytes_then_fail(file: int, data: bytes) -> int:
        if size := next(calls, None):
            return really_write(file, bytes(data)[:size])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write_three_bytes_then_fail)
    with pytest.raises(OSError, match="No space left"):
        append(tmp_path, FOLDER, "hooks.log", b"half a line\n")
    assert contents(tmp_path) == {"hooks.log": "whole\n"}
