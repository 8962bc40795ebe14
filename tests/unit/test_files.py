"""Nothing at a path leads out of the folder that it is below, or is waited for, whatever changes meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spyweb.files import READ, Forbidden, open_file, open_folder, open_regular, replace, resolve


@pytest.mark.parametrize(("make", "words"), [(Path.mkdir, "Is a directory"), (os.mkfifo, "not a regular file")])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, make: object, words: str) -> None:
    assert callable(make)
    make(tmp_path / "a")

    with pytest.raises(OSError, match=words):
        open_regular(tmp_path / "a")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with links that lead in and out."""
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (root / "inside").symlink_to("a/b/file")
    (root / "a/up").symlink_to("../a/b")
    (root / "absolute").symlink_to(root / "a/b/file")
    (root / "out").symlink_to("../secret")
    (root / "a/out").symlink_to("../../secret")
    (root / "loop").symlink_to("loop")
    (root / "proc").symlink_to("/proc/self/root")
    return root


def content(root: Path, path: str, base: str = "") -> str:
    with os.fdopen(open_file(resolve(root, base, path), READ)) as opened:
        return opened.read()


@pytest.mark.parametrize("path", ["a/b/file", "./a//b/./file", "inside", "a/up/file", "a/../a/b/file", "absolute"])
def test_what_is_inside_is_opened_through_links_too(root: Path, path: str) -> None:
    assert content(root, path) == "inside"


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "out", "a/out", "proc/etc/passwd", ".."])
def test_what_leads_out_is_refused(root: Path, path: str) -> None:
    with pytest.raises(Forbidden, match="it leads out"):
        resolve(root, "", path)


def test_a_link_from_one_job_to_another_is_refused(root: Path) -> None:
    (root / "a/b/aside").symlink_to("..")
    with pytest.raises(Forbidden, match="it leads out"):
        resolve(root, "a/b", "aside")
    with pytest.raises(Forbidden, match="it leads out"):
        resolve(root, "out", "x")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("none", "No such file"),
        ("a/none/x", "No such file"),
        ("a/b/file/x", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
        (".", "Is a directory"),
    ],
)
def test_the_systems_own_errors_stay_what_they_are(root: Path, path: str, text: str) -> None:
    with pytest.raises(OSError, match=text):
        content(root, path)


def test_folders_are_made_only_where_that_is_wanted(root: Path) -> None:
    seen: list[str] = []

    def note(folder: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{folder}"))

    with pytest.raises(FileNotFoundError):
        open_folder(resolve(root, "a", "x/y"))
    os.close(open_folder(resolve(root, "a", "x/y"), make=0o700, before_make=note))
    assert (root / "a/x/y").stat().st_mode & 0o777 == 0o700
    assert seen == [str(root / "a"), str(root / "a/x")]


@pytest.mark.parametrize("swapped", ["a", "b", "file"])
def test_a_link_that_is_put_there_after_the_look_is_not_followed(root: Path, tmp_path: Path, swapped: str) -> None:
    """The swap that every check before an open loses to."""
    (tmp_path / "outside/b").mkdir(parents=True)
    for place in ("outside/file", "outside/b/file"):
        (tmp_path / place).write_text("outside")
    seen = resolve(root, "", "a/b/file")
    link = next(each for each in (root / "a", root / "a/b", root / "a/b/file") if each.name == swapped)
    link.rename(tmp_path / "moved")
    link.symlink_to(tmp_path / "outside" / ("file" if swapped == "file" else ""))

    with pytest.raises(OSError, match=r"symbolic links|a link was put there"):
        open_file(seen, READ)


def test_no_descriptor_is_left_open(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    attempts: list[Callable[[], object]] = [
        lambda: content(root, "a/up/file"),
        lambda: content(root, "none/file"),
        lambda: content(root, "loop"),
        lambda: os.close(open_folder(resolve(root, "a", "x/y"), make=0o700)),
        lambda: os.close(open_folder(resolve(root, "a", "b/file/x"), make=0o700)),
    ]
    for attempt in attempts:
        try:
            attempt()
        except OSError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_file_that_can_not_be_replaced_stays_and_nothing_is_left_beside_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    name = "é" * 120  # as long as a name may be
    folder = open_folder(resolve(root, "a", "b"))
    replace(folder, name, [b"old"])
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space left"):
            replace(folder, name, [b"new"])
    os.close(folder)

    assert (root / "a/b" / name).read_text() == "old"
    assert sorted(os.listdir(root / "a/b")) == ["file", name]
