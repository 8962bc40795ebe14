from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spyweb.ops import disk
from spyweb.ops.disk import Files
from spyweb.ops.jail import FilePlace, Forbidden
from tests.fakes.clock import FakeClock

HERE = FilePlace("jobs/prices", ("data.csv",))
LIMIT = 1000


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, FakeClock())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs/prices/data.csv"
    path.parent.mkdir(parents=True)
    return path


def test_what_is_appended_is_read_again(files: Files) -> None:
    assert files.read(HERE, LIMIT) is None
    files.append(HERE, b"a,1\n")
    files.append(HERE, b"\xff\0\n")
    assert files.read(HERE, LIMIT) == b"a,1\n\xff\0\n"


def test_a_file_where_a_folder_is_meant_is_no_file(files: Files) -> None:
    files.append(HERE, b"x")
    assert files.read(FilePlace("jobs/prices", ("data.csv", "x.csv")), LIMIT) is None


def test_nothing_larger_than_the_limit_is_read(files: Files, file: Path) -> None:
    file.write_bytes(b"x" * LIMIT)
    assert files.read(HERE, LIMIT) == b"x" * LIMIT
    file.write_bytes(b"x" * (LIMIT + 1))
    with pytest.raises(Forbidden, match=r"it is larger than the memory limit of its VM"):
        files.read(HERE, LIMIT)


def test_a_full_file_gives_way(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_BYTES", 10)
    for number in range(8):
        files.append(HERE, f"line {number}\n".encode())
    names = sorted(path.name for path in (tmp_path / "jobs/prices").iterdir())
    assert names == [*(f"data.20260101-000000{suffix}.csv" for suffix in ("-3", "-4", "-5", "-6", "-7")), "data.csv"]
    assert files.read(HERE, LIMIT) == b"line 7\n"


def test_lines_of_many_threads_do_not_mix_and_none_is_lost(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_BYTES", 40_000)
    monkeypatch.setattr(disk, "KEPT", 100)
    lines = [f"{number:03d} ".encode() * 500 + b"\n" for number in range(60)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda line: files.append(HERE, line), lines))
    folder = files.root / "jobs/prices"
    found = b"".join(path.read_bytes() for path in folder.iterdir()).splitlines(keepends=True)
    assert sorted(found) == sorted(lines)


def test_a_disk_that_fills_up_leaves_no_half_line(files: Files, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"whole\n")
    write = os.write
    answers = iter([3])

    def full(descriptor: int, data: bytes) -> int:
        for size in answers:
            return write(descriptor, data[:size])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        files.append(HERE, b"half a line\n")
    monkeypatch.undo()
    assert file.read_bytes() == b"whole\n"


def test_an_overwrite_replaces_all_of_it_and_leaves_nothing_beside(files: Files, file: Path) -> None:
    files.overwrite(HERE, b"long content")
    files.overwrite(HERE, b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in file.parent.iterdir()] == ["data.csv"]


def test_an_overwrite_that_fails_leaves_the_old_file(files: Files, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        files.overwrite(HERE, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in file.parent.iterdir()] == ["data.csv"]


def test_an_overwrite_of_a_link_inside_changes_the_file_behind_it(files: Files, file: Path) -> None:
    (file.parent / "real.csv").write_bytes(b"old")
    file.symlink_to("real.csv")
    files.overwrite(HERE, b"new")
    assert file.is_symlink()
    assert (file.parent / "real.csv").read_bytes() == b"new"


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [make_fifo, make_folder])
def test_what_is_no_plain_file_is_refused_and_nothing_waits(
    files: Files, file: Path, make: Callable[[Path], None]
) -> None:
    make(file)
    attempts: list[Callable[[], object]] = [
        lambda: files.read(HERE, LIMIT),
        lambda: files.append(HERE, b"x"),
        lambda: files.overwrite(HERE, b"x"),
    ]
    for attempt in attempts:
        with pytest.raises((Forbidden, OSError), match=r"plain file|No such device|Is a directory"):
            attempt()


def test_a_link_to_the_kernels_files_is_refused(files: Files, file: Path) -> None:
    file.symlink_to("/proc/self/environ")
    with pytest.raises(Forbidden, match="it leads out of jobs/prices"):
        files.read(HERE, LIMIT)


def test_a_hard_link_is_neither_read_nor_appended_to(files: Files, file: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"secret")
    file.hardlink_to(victim)
    attempts: list[Callable[[], object]] = [lambda: files.read(HERE, LIMIT), lambda: files.append(HERE, b"x")]
    for attempt in attempts:
        with pytest.raises(Forbidden, match="it is a hard link"):
            attempt()
    files.overwrite(HERE, b"new")
    assert victim.read_bytes() == b"secret"


def test_a_file_that_becomes_a_link_after_the_look_is_not_followed(
    files: Files, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"secret")
    look = os.path.realpath

    def look_then_swap(path: str | Path) -> str:
        found = look(path)
        if str(path).endswith("data.csv"):
            file.unlink(missing_ok=True)
            file.symlink_to(victim)
        return found

    monkeypatch.setattr(os.path, "realpath", look_then_swap)
    attempts: list[Callable[[], object]] = [lambda: files.read(HERE, LIMIT), lambda: files.append(HERE, b"x")]
    for attempt in attempts:
        file.unlink(missing_ok=True)
        file.write_bytes(b"mine")
        with pytest.raises(OSError, match="symbolic links"):
            attempt()
    monkeypatch.undo()
    assert victim.read_bytes() == b"secret"


def test_locks_are_few_whatever_scripts_name(files: Files) -> None:
    assert len(files._locks) == disk.LOCKS


@pytest.mark.parametrize("name", ["hooks.log", "HOOKS.log", "Hooks.LOG", "hook\u017f.log", "link.log", "sub/hooks.log"])
def test_a_job_does_not_write_its_own_log(files: Files, file: Path, name: str) -> None:
    log = file.parent / "hooks.log"
    log.write_bytes(b"what happened")
    (file.parent / "link.log").symlink_to(log)
    (file.parent / "sub").symlink_to(".")
    place = FilePlace("jobs/prices", tuple(name.split("/")))

    for write in (files.append, files.overwrite):
        with pytest.raises(Forbidden, match="it is the job's log, which spyweb alone writes"):
            write(place, b"nothing happened")
    assert log.read_bytes() == b"what happened"
    assert (file.parent / "hooks.log").is_file()


def test_a_log_that_is_a_link_is_not_written_where_it_leads_either(files: Files, file: Path) -> None:
    (file.parent / "hooks.log").symlink_to("kept.log")

    with pytest.raises(Forbidden, match="it is the job's log"):
        files.append(FilePlace("jobs/prices", ("kept.log",)), b"x")


def test_a_job_reads_its_own_log(files: Files, file: Path) -> None:
    (file.parent / "hooks.log").write_bytes(b"what happened")

    assert files.read(FilePlace("jobs/prices", ("hooks.log",)), LIMIT) == b"what happened"


@pytest.mark.parametrize("place", [FilePlace("jobs/prices", ("old", "hooks.log")), FilePlace("shared", ("hooks.log",))])
def test_a_file_of_that_name_elsewhere_is_one_like_any_other(files: Files, place: FilePlace) -> None:
    files.append(place, b"x")
    files.overwrite(place, b"y")

    assert files.read(place, LIMIT) == b"y"
