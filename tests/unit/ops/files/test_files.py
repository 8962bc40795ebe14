from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spyweb.files import Forbidden
from spyweb.ops.files import files as files_module
from spyweb.ops.files.files import MAX_BYTES, FileOutcome, Files, is_full, kept_aside, name_aside
from spyweb.ops.files.names import FilePlace
from tests.fakes.clock import FakeClock


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs/x/data.csv"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, FakeClock())


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str], FilePlace]:
    (tmp_path / "jobs").mkdir(exist_ok=True)

    def place(path: str) -> FilePlace:
        return FilePlace(str(tmp_path), "jobs/x", tuple(path.split("/")))

    return place


Place = Callable[[str], FilePlace]

LIMIT = 1000


def put(files: Files, place: FilePlace, content: bytes, mode: int | None = None, **more: bool) -> FileOutcome:
    outcome = files.put(place, content, mode, check=more.get("check", False))
    assert outcome is not None
    return outcome


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def test_a_file_is_written_once(files: Files, place: Place, tmp_path: Path) -> None:
    assert put(files, place("a.conf"), b"one") == FileOutcome(True, "written", checksum(b"one"))
    file = tmp_path / "jobs/x/a.conf"
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"one", 0o644)
    before = file.stat()
    assert put(files, place("a.conf"), b"one") == FileOutcome(False, "unchanged", checksum(b"one"))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert put(files, place("a.conf"), b"two").changed
    assert os.listdir(file.parent) == ["a.conf"]


def test_a_copy_is_equal_and_has_the_mode_of_its_source(files: Files, place: Place, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    put(files, place("src"), content, 0o750)
    assert files.copy(place("src"), place("dest"), None, check=False) == FileOutcome(True, "written", checksum(content))
    dest = tmp_path / "jobs/x/dest"
    assert (dest.read_bytes(), stat.S_IMODE(dest.stat().st_mode)) == (content, 0o750)
    assert files.copy(place("src"), place("dest"), None, check=False) == FileOutcome(
        False, "unchanged", checksum(content)
    )
    dest.write_bytes(content[:-1] + b"?" if content[-1:] != b"?" else content[:-1] + b"!")
    dest.chmod(0o600)
    assert files.copy(place("src"), place("dest"), None, check=False).changed
    assert (dest.read_bytes(), stat.S_IMODE(dest.stat().st_mode)) == (content, 0o600), "its mode is kept"


def test_the_mode_alone_may_differ(files: Files, place: Place, tmp_path: Path) -> None:
    put(files, place("a"), b"x", 0o600)
    message = "its mode would be 0640 instead of 0600"
    assert put(files, place("a"), b"x", 0o640, check=True) == FileOutcome(True, message, checksum(b"x"))
    assert put(files, place("a"), b"x", 0o640).message == "its mode is 0640 instead of 0600"
    assert put(files, place("a"), b"x", 0o640) == FileOutcome(False, "unchanged", checksum(b"x"))
    assert stat.S_IMODE((tmp_path / "jobs/x/a").stat().st_mode) == 0o640


def test_a_folder_is_made_with_those_above_it(files: Files, place: Place, tmp_path: Path) -> None:
    assert files.mkdir(place("a/b/c"), 0o700, check=True) == FileOutcome(True, "it would be made")
    assert not (tmp_path / "jobs/x").exists()
    assert files.mkdir(place("a/b/c"), 0o700, check=False) == FileOutcome(True, "made")
    assert files.mkdir(place("a/b/c"), 0o700, check=False) == FileOutcome(False, "unchanged")
    assert stat.S_IMODE((tmp_path / "jobs/x/a/b/c").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "jobs/x/a/b").stat().st_mode) == 0o755
    put(files, place("file"), b"")
    with pytest.raises(NotADirectoryError):
        files.mkdir(place("file"), None, check=False)


def test_what_is_removed_is_gone(files: Files, place: Place, tmp_path: Path) -> None:
    assert files.remove(place("a"), check=False) == FileOutcome(False, "it is not there")
    put(files, place("a"), b"x")
    files.mkdir(place("folder/inner"), None, check=False)
    (tmp_path / "jobs/x/link").symlink_to("/etc/passwd")
    for name in ("a", "link", "folder/inner"):
        assert files.remove(place(name), check=True) == FileOutcome(True, "it would be removed")
        assert files.remove(place(name), check=False) == FileOutcome(True, "removed")
        assert files.remove(place(name), check=False) == FileOutcome(False, "it is not there")
    assert Path("/etc/passwd").exists()
    files.mkdir(place("folder/inner"), None, check=False)
    with pytest.raises(OSError, match="Directory not empty"):
        files.remove(place("folder"), check=False)


def test_what_is_there_is_told(files: Files, place: Place, tmp_path: Path) -> None:
    assert files.stat(place("a")) == {"exists": False}
    put(files, place("a"), b"abc", 0o640)
    found = files.stat(place("a"))
    assert found.pop("modified") == int((tmp_path / "jobs/x/a").stat().st_mtime)
    assert found == {"exists": True, "type": "file", "size": 3, "mode": "0640", "checksum": checksum(b"abc")}
    assert files.stat(place("a/b")) == {"exists": False}
    files.mkdir(place("folder"), None, check=False)
    assert files.stat(place("folder"))["type"] == "folder"
    (tmp_path / "jobs/x/link").symlink_to("/etc/passwd")
    assert files.stat(place("link"))["type"] == "link"
    os.mkfifo(tmp_path / "jobs/x/pipe")
    assert files.stat(place("pipe"))["type"] == "other"


def test_only_plain_files_are_written_or_read(files: Files, place: Place, tmp_path: Path) -> None:
    put(files, place("a"), b"x")
    (tmp_path / "jobs/x/link").symlink_to("a")
    os.mkfifo(tmp_path / "jobs/x/pipe")
    files.mkdir(place("folder"), None, check=False)
    for name, reason in (("link", "a symbolic link"), ("pipe", "not a plain file"), ("folder", "not a plain file")):
        with pytest.raises(Forbidden, match=reason):
            put(files, place(name), b"x")
        with pytest.raises(Forbidden, match=reason):
            files.copy(place("a"), place(name), None, check=False)
    assert files.copy(place("link"), place("b"), None, check=False).changed, "a link inside may be read"
    for name in ("pipe", "folder"):
        with pytest.raises(Forbidden, match="not a plain file"):
            files.copy(place(name), place("b"), None, check=False)
    with pytest.raises(FileNotFoundError):
        put(files, place("nowhere/a"), b"x")


def test_a_second_name_of_a_file_keeps_the_old_one(files: Files, place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"same")
    put(files, place("src"), b"same")
    os.link(other, tmp_path / "jobs/x/dest")
    assert files.copy(place("src"), place("dest"), 0o600, check=False).changed
    assert other.stat().st_nlink == 1
    assert stat.S_IMODE(other.stat().st_mode) != 0o600
    os.unlink(tmp_path / "jobs/x/dest")
    os.link(other, tmp_path / "jobs/x/dest")
    assert put(files, place("dest"), b"same", 0o600).changed
    assert other.stat().st_nlink == 1


def test_what_leads_out_is_refused_and_nothing_is_done(files: Files, place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"secret")
    put(files, place("mine"), b"x")
    (tmp_path / "jobs/x/out").symlink_to("../../outside")
    before = everything(outside)
    for work in (
        lambda: put(files, place("out/a"), b"x"),
        lambda: put(files, place("out/a"), b"x", check=True),
        lambda: files.copy(place("mine"), place("out/b"), None, check=False),
        lambda: files.copy(place("out/a"), place("mine"), None, check=False),
        lambda: files.mkdir(place("out/folder"), None, check=False),
        lambda: files.remove(place("out/a"), check=False),
        lambda: files.stat(place("out/a")),
        lambda: files.read(place("out/a"), 99),
    ):
        with pytest.raises(Forbidden, match="it leads out"):
            work()
    assert everything(outside) == before


def test_a_folder_of_a_job_that_leads_out_is_refused(files: Files, place: Place, tmp_path: Path) -> None:
    (tmp_path / "jobs/x").symlink_to("/tmp")
    with pytest.raises(Forbidden, match="it leads out"):
        put(files, place("a"), b"x")


@pytest.mark.parametrize("moment", ["stat", "fsync", "rename"])
def test_a_link_that_is_swapped_in_meanwhile_leads_nowhere(
    files: Files, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A folder on the way, and the file itself, become links that lead out, at a step of the work."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"secret")
    files.mkdir(place("folder"), None, check=False)
    put(files, place("folder/a"), b"old")
    folder = tmp_path / "jobs/x/folder"
    before = everything(outside)
    real = getattr(os, moment)
    swapped: list[str] = []

    def swap(*given: object, **named: object) -> object:
        if not swapped:
            swapped.append(moment)
            folder.rename(tmp_path / "jobs/x/moved")
            folder.symlink_to(outside)
            (tmp_path / "jobs/x/moved/a").unlink()
            (tmp_path / "jobs/x/moved/a").symlink_to(outside / "a")
        return real(*given, **named)

    monkeypatch.setattr(os, moment, swap)
    try:
        put(files, place("folder/a"), b"new", 0o600)
    except (Forbidden, OSError):
        assert moment == "stat"
    assert swapped
    assert everything(outside) == before


def test_a_link_that_takes_the_place_of_the_file_between_look_and_opening_is_not_followed(
    files: Files, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"new")
    put(files, place("a"), b"old")
    before = everything(outside)
    real = os.open

    def swap(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a":
            (tmp_path / "jobs/x/a").unlink()
            (tmp_path / "jobs/x/a").symlink_to(outside / "a")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(OSError, match="symbolic links"):
        put(files, place("a"), b"new", 0o600)
    assert everything(outside) == before, "its mode is what it was"


def test_one_that_is_no_longer_as_expected_is_not_written(files: Files, place: Place) -> None:
    assert files.put(place("a"), b"x", None, check=False, expected=b"y") is None
    assert files.put(place("a"), b"x", None, check=False, expected=b"") is not None
    assert files.put(place("a"), b"y", None, check=False, expected=b"") is None
    assert files.read(place("a"), 99) == b"x"


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(
    files: Files, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(files, place("a"), b"old")

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        put(files, place("a"), b"new")
    assert everything(tmp_path / "jobs/x") == {"a": (stat.S_IFREG | 0o644, b"old")}


def test_nothing_is_written_where_spyweb_keeps_its_own(tmp_path: Path) -> None:
    data = tmp_path / "project/data"
    (data / "artifacts").mkdir(parents=True)
    (data / "spyweb.db").write_bytes(b"rows")
    (tmp_path / "link").symlink_to("project/data")
    before = everything(tmp_path)
    files = Files(tmp_path, FakeClock(), kept_out=data)
    for path in ("project/data/spyweb.db", "project/data/new", "link/spyweb.db", "project/data/artifacts/new"):
        at = FilePlace(str(tmp_path), "", tuple(path.split("/")))
        for check in (True, False):
            with pytest.raises(Forbidden, match="spyweb keeps its own there"):
                files.put(at, b"x", None, check=check)
            with pytest.raises(Forbidden, match="spyweb keeps its own there"):
                files.copy(FilePlace(str(tmp_path), "", ("project", "data", "spyweb.db")), at, None, check=check)
            with pytest.raises(Forbidden, match="spyweb keeps its own there"):
                files.remove(at, check=check)
    for path in ("project/data/a", "link/a/b", "project/data"):
        with pytest.raises(Forbidden, match="spyweb keeps its own there"):
            files.mkdir(FilePlace(str(tmp_path), "", tuple(path.split("/"))), 0o777, check=False)
    assert everything(tmp_path) == before
    beside = FilePlace(str(tmp_path), "", ("project", "copy.db"))
    assert files.copy(FilePlace(str(tmp_path), "", ("link", "spyweb.db")), beside, None, check=False).changed
    files.remove(beside, check=False)


# What fs_* does


def test_nothing_larger_than_the_limit_is_read(files: Files, place: Place, file: Path) -> None:
    file.write_bytes(b"x" * LIMIT)
    assert files.read(place("data.csv"), LIMIT) == b"x" * LIMIT
    file.write_bytes(b"x" * (LIMIT + 1))
    with pytest.raises(Forbidden, match="it has 1001 bytes, at most 1000 are allowed"):
        files.read(place("data.csv"), LIMIT)


def test_a_full_file_gives_way(files: Files, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "MAX_BYTES", 10)
    for number in range(8):
        files.append(place("data.csv"), f"line {number}\n".encode())
    names = sorted(path.name for path in (tmp_path / "jobs/x").iterdir())
    assert names == [*(f"data.20260101-000000{suffix}.csv" for suffix in ("-3", "-4", "-5", "-6", "-7")), "data.csv"]
    assert [(tmp_path / "jobs/x" / name).read_bytes() for name in names] == [
        b"line %d\n" % each for each in range(2, 8)
    ]


def test_lines_of_many_threads_do_not_mix_and_none_is_lost(
    files: Files, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "MAX_BYTES", 40_000)
    monkeypatch.setattr(files_module, "KEPT", 100)
    lines = [f"{number:03d} ".encode() * 500 + b"\n" for number in range(60)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda line: files.append(place("data.csv"), line), lines))
    folder = Path(files.top) / "jobs/x"
    found = b"".join(path.read_bytes() for path in folder.iterdir()).splitlines(keepends=True)
    assert sorted(found) == sorted(lines)


def test_an_overwrite_replaces_all_of_it_and_leaves_nothing_beside(files: Files, place: Place, file: Path) -> None:
    files.overwrite(place("data.csv"), b"long content")
    files.overwrite(place("data.csv"), b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in file.parent.iterdir()] == ["data.csv"]


def test_an_overwrite_of_a_link_inside_changes_the_file_behind_it(files: Files, place: Place, file: Path) -> None:
    (file.parent / "real.csv").write_bytes(b"old")
    file.symlink_to("real.csv")
    files.overwrite(place("data.csv"), b"new")
    assert file.is_symlink()
    assert (file.parent / "real.csv").read_bytes() == b"new"


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [make_fifo, make_folder])
def test_what_is_no_plain_file_is_refused_and_nothing_waits(
    files: Files, place: Place, file: Path, make: Callable[[Path], None]
) -> None:
    make(file)
    attempts: list[Callable[[], object]] = [
        lambda: files.read(place("data.csv"), LIMIT, by_only_name=True),
        lambda: files.append(place("data.csv"), b"x"),
        lambda: files.overwrite(place("data.csv"), b"x"),
    ]
    for attempt in attempts:
        with pytest.raises((Forbidden, OSError), match=r"plain file|No such device|Is a directory"):
            attempt()


def test_a_hard_link_is_neither_read_nor_appended_to(files: Files, place: Place, file: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"secret")
    file.hardlink_to(victim)
    attempts: list[Callable[[], object]] = [
        lambda: files.read(place("data.csv"), LIMIT, by_only_name=True),
        lambda: files.append(place("data.csv"), b"x"),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden, match="it is a hard link"):
            attempt()
    files.overwrite(place("data.csv"), b"new")
    assert victim.read_bytes() == b"secret"


@pytest.mark.parametrize("name", ["hooks.log", "HOOKS.log", "Hooks.LOG", "hook\u017f.log", "link.log", "sub/hooks.log"])
def test_a_job_does_not_write_its_own_log(files: Files, place: Place, file: Path, name: str) -> None:
    log = file.parent / "hooks.log"
    log.write_bytes(b"what happened")
    (file.parent / "link.log").symlink_to(log)
    (file.parent / "sub").symlink_to(".")
    for write in (files.append, files.overwrite):
        with pytest.raises(Forbidden, match="it is the job's log, which spyweb alone writes"):
            write(place(name), b"nothing happened")
    assert log.read_bytes() == b"what happened"
    assert (file.parent / "hooks.log").is_file()


def test_a_log_that_is_a_link_is_not_written_where_it_leads_either(files: Files, place: Place, file: Path) -> None:
    (file.parent / "hooks.log").symlink_to("kept.log")

    with pytest.raises(Forbidden, match="it is the job's log"):
        files.append(place("kept.log"), b"x")


def test_a_job_reads_its_own_log(files: Files, place: Place, file: Path) -> None:
    (file.parent / "hooks.log").write_bytes(b"what happened")

    assert files.read(place("hooks.log"), LIMIT) == b"what happened"


def test_a_file_of_that_name_elsewhere_is_one_like_any_other(files: Files, place: Place) -> None:
    for each in (place("old/hooks.log"), FilePlace(files.top, "shared", ("hooks.log",))):
        files.append(each, b"x")
        files.overwrite(each, b"y")
        assert files.read(each, LIMIT) == b"y"


AT_MS = 1_778_769_005_999  # 2026-05-14T14:30:05.999Z


def test_a_file_is_full_when_what_comes_would_pass_ten_megabytes() -> None:
    assert MAX_BYTES == 10 * 1024 * 1024
    assert not is_full(MAX_BYTES - 1, 1)
    assert is_full(MAX_BYTES, 1)
    assert not is_full(0, MAX_BYTES + 1)


def test_names_are_stamped_and_numbered_within_a_second() -> None:
    assert name_aside([], "data.csv", AT_MS) == "data.20260514-143005.csv"
    assert name_aside(["data.20260514-143005.csv"], "data.csv", AT_MS) == "data.20260514-143005-2.csv"
    assert name_aside(["data.20260514-143005-9.csv"], "data.csv", AT_MS) == "data.20260514-143005-10.csv"
    assert name_aside(["other.20260514-143005.csv"], "a.b.csv", AT_MS) == "a.b.20260514-143005.csv"


def test_a_clock_that_was_set_back_does_not_make_the_newest_look_old() -> None:
    assert name_aside(["data.20270101-000000.csv"], "data.csv", AT_MS) == "data.20270101-000000-2.csv"


def test_only_its_own_older_files_are_counted_oldest_first() -> None:
    own = ["data.20260514-143005.csv", "data.20260514-143005-2.csv", "data.20260514-143005-10.csv"]
    others = ["data.csv", "data.20260514.csv", "other.20260514-143005.csv", "data.20260514-143005.txt", "data.x.csv"]
    assert kept_aside([*reversed(own), *others], "data.csv") == own
