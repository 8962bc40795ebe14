"""The folders of commands that nobody has any more are removed, and no others."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from pathlib import Path

import pytest

from spyweb.programs.sweep import NEW_MS, make_folder, remove_folder, remove_left

NOW_MS = 1_800_000_000_000


def folder(place: Path, name: str, age_ms: int = 2 * NEW_MS) -> Path:
    made = place / name
    (made / "deep").mkdir(parents=True)
    (made / "deep/file").touch()
    set_age(made, age_ms)
    return made


def set_age(path: Path, age_ms: int) -> None:
    seconds = (NOW_MS - age_ms) / 1000
    os.utime(path, (seconds, seconds))


def test_what_is_left_is_removed_and_what_is_new_or_anothers_is_not(tmp_path: Path) -> None:
    left = folder(tmp_path, "spyweb-0123456789abcdef")
    kept = [folder(tmp_path, "spyweb-notes"), folder(tmp_path, "x-spyweb-0123456789abcdef"), folder(tmp_path, "other")]
    kept.append(folder(tmp_path, f"spyweb-{1:016x}", age_ms=NEW_MS // 2))
    link = tmp_path / f"spyweb-{2:016x}"
    link.symlink_to("other")
    remove_left(os.fsencode(tmp_path), NOW_MS)
    assert not left.exists()
    assert [path for path in kept if not (path / "deep/file").exists()] == []
    assert link.is_symlink()


def test_a_folder_is_in_use_until_its_process_ends(tmp_path: Path) -> None:
    told, tell = os.pipe()
    pid = os.fork()
    if not pid:  # as a nanny does
        os.write(tell, make_folder(os.fsencode(tmp_path)))
        signal.pause()
    made = Path(os.fsdecode(os.read(told, 4096)))
    set_age(made, 2 * NEW_MS)
    remove_left(os.fsencode(tmp_path), NOW_MS)
    assert made.is_dir()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    remove_left(os.fsencode(tmp_path), NOW_MS)
    assert not made.exists()


def test_a_folder_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    remove_folder(os.fsencode(folder(tmp_path, "a")))
    remove_folder(os.fsencode(tmp_path / "never"))
    assert list(tmp_path.iterdir()) == []


def test_where_folders_can_not_be_locked_they_are_made_and_never_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    made = Path(os.fsdecode(make_folder(os.fsencode(tmp_path))))
    set_age(made, 2 * NEW_MS)
    remove_left(os.fsencode(tmp_path), NOW_MS)
    assert made.is_dir()


def test_a_place_that_is_not_there_has_nothing_left(tmp_path: Path) -> None:
    remove_left(os.fsencode(tmp_path / "none"), NOW_MS)
    with pytest.raises(FileNotFoundError):
        make_folder(os.fsencode(tmp_path / "none"))
