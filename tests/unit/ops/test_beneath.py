from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spyweb.ops import beneath
from spyweb.ops.beneath import LEADS_OUT, MOST_LINKS, BeneathOpener, openat2, walk
from spyweb.ops.jail import Forbidden

READ = os.O_RDONLY | os.O_CLOEXEC

Open = Callable[[int, str, int], int]

needs_openat2 = pytest.mark.skipif(sys.platform != "linux", reason="the kernel has no openat2")


@pytest.fixture(params=["kernel", "walk"])
def open_beneath(request: pytest.FixtureRequest) -> Open:
    """Both ways promise the same."""
    return BeneathOpener().open if request.param == "kernel" else walk


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[int]:
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (root / "inside").symlink_to("a/b/file")
    (root / "a/up").symlink_to("../a/b")
    (root / "out").symlink_to("../secret")
    (root / "a/out").symlink_to("../../secret")
    (root / "absolute").symlink_to(root / "a/b/file")
    (root / "loop").symlink_to("loop")
    (root / "proc").symlink_to("/proc/self/root")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    yield folder
    os.close(folder)


def content(file: int) -> str:
    with os.fdopen(file) as opened:
        return opened.read()


@pytest.mark.parametrize("path", ["a/b/file", "./a//b/./file", "inside", "a/up/file", "a/../a/b/file"])
def test_what_is_inside_is_opened_through_links_too(open_beneath: Open, tree: int, path: str) -> None:
    assert content(open_beneath(tree, path, READ)) == "inside"


def test_the_folder_itself_is_opened(open_beneath: Open, tree: int) -> None:
    found = open_beneath(tree, ".", READ | os.O_DIRECTORY)
    assert os.fstat(found).st_ino == os.fstat(tree).st_ino
    os.close(found)


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "out", "a/out", "absolute", "proc/etc/passwd", ".."])
def test_what_leads_out_is_refused(open_beneath: Open, tree: int, path: str) -> None:
    with pytest.raises(Forbidden, match=LEADS_OUT):
        open_beneath(tree, path, READ)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("none", "No such file"),
        ("a/none/x", "No such file"),
        ("a/b/file/x", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
    ],
)
def test_the_systems_own_errors_stay_what_they_are(open_beneath: Open, tree: int, path: str, text: str) -> None:
    with pytest.raises(OSError, match=text):
        open_beneath(tree, path, READ)


def test_no_descriptor_is_left_open(open_beneath: Open, tree: int) -> None:
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for path in ["a/b/file", "a/out", "none", "loop", "a/up/file"]:
        try:
            os.close(open_beneath(tree, path, READ))
        except (Forbidden, OSError):
            continue
    assert (len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0) == before


@needs_openat2
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_the_kernel_can_not_the_path_is_walked(tree: int, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    asked: list[str] = []

    def refuse(folder: int, path: str, flags: int) -> int:
        asked.append(path)
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(beneath, "openat2", refuse)
    opener = BeneathOpener()
    assert content(opener.open(tree, "inside", READ)) == "inside"
    with pytest.raises(Forbidden):
        opener.open(tree, "a/out", READ)
    assert asked == ["inside"], "it is not asked again"


@needs_openat2
def test_a_folder_that_is_moved_meanwhile_is_tried_again(tree: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [errno.EAGAIN, errno.EAGAIN]

    def retry(folder: int, path: str, flags: int) -> int:
        if left:
            ctypes.set_errno(left.pop())
            return -1
        return openat2(folder, path, flags)

    monkeypatch.setattr(beneath, "openat2", retry)
    assert content(BeneathOpener().open(tree, "inside", READ)) == "inside"


@needs_openat2
def test_a_folder_that_is_moved_for_ever_is_walked(tree: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def retry(folder: int, path: str, flags: int) -> int:
        ctypes.set_errno(errno.EAGAIN)
        return -1

    monkeypatch.setattr(beneath, "openat2", retry)
    assert content(BeneathOpener().open(tree, "inside", READ)) == "inside"


def test_a_link_that_is_put_in_the_place_of_a_folder_meanwhile_is_not_followed(
    tree: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk has seen that `a` is no link, and before it opens it, it is one that leads out."""
    outside = tmp_path / "outside"
    (outside / "b").mkdir(parents=True)
    (outside / "b/file").write_text("outside")
    real = os.open

    def swap(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a":
            (tmp_path / "root/a").rename(tmp_path / "root/old")
            (tmp_path / "root/a").symlink_to(outside)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        walk(tree, "a/b/file", READ)


def test_a_folder_that_is_moved_out_meanwhile_is_left_by_the_way_it_was_entered(
    tree: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def move(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened = real(path, flags, mode, dir_fd=dir_fd)
        if path == "b":
            (tmp_path / "root/a/b").rename(tmp_path / "b")
        return opened

    monkeypatch.setattr(os, "open", move)
    with pytest.raises(FileNotFoundError):
        walk(tree, "a/b/../../secret", READ)


def test_links_are_counted(tree: int, tmp_path: Path) -> None:
    for number in range(MOST_LINKS + 1):
        (tmp_path / f"root/l{number}").symlink_to(f"l{number + 1}")
    with pytest.raises(OSError, match="symbolic links"):
        walk(tree, "l0", READ)
