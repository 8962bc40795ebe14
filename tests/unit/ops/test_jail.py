from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.ops.jail import BINARY_KINDS, TEXT_KINDS, FilePlace, Forbidden, complaint, entered, places_of, steps_of

FOLDER = "jobs/prices"


def refusal(name: bytes) -> str:
    with pytest.raises(Forbidden) as refused:
        places_of(FOLDER, name, TEXT_KINDS)
    return str(refused.value)


def test_a_name_is_looked_for_in_the_jobs_folder_and_then_in_the_shared_one() -> None:
    assert places_of(FOLDER, b"a/b.csv", TEXT_KINDS) == (
        FilePlace(FOLDER, ("a", "b.csv")),
        FilePlace("shared", ("a", "b.csv")),
    )


def test_a_name_that_begins_with_shared_means_the_shared_folder_alone() -> None:
    shared = FilePlace("shared", ("a.csv",))
    assert places_of(FOLDER, b"shared/a.csv", TEXT_KINDS) == (shared, shared)
    assert places_of(FOLDER, b"./shared//a.csv", TEXT_KINDS) == (shared, shared)
    assert places_of(FOLDER, b"shared.csv", TEXT_KINDS)[0] == FilePlace(FOLDER, ("shared.csv",))


def test_empty_steps_and_dots_are_nothing() -> None:
    assert steps_of(b"./a//./b.csv") == ("a", "b.csv")
    assert steps_of("données/ß x.csv".encode()) == ("données", "ß x.csv")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"/etc/passwd.txt", "an absolute path is not allowed"),
        (b"\\\\server\\a.csv", "an absolute path is not allowed"),
        (b"C:a.csv", "an absolute path is not allowed"),
        (b"../a.csv", "'..' is not allowed in it"),
        (b"shared/../../a.csv", "'..' is not allowed in it"),
        (b"a\\..\\b.csv", "'..' is not allowed in it"),
        (b"a\\b.csv", "'\\' is not allowed in it: folders are separated by '/'"),
        (b"a\0.csv", "control characters are not allowed in it"),
        (b"a\n.csv", "control characters are not allowed in it"),
        ("a\u202evsc.csv".encode(), "control characters are not allowed in it"),
        (b"\xff.csv", "a file's name must be UTF-8"),
        (b"", "the name of a file expected"),
        (b".", "the name of a file expected"),
        (b"a.csv/", "the name of a file expected"),
        (b"shared/", "the name of a file expected"),
        (b"a.csv/.", "the name of a file expected"),
        (b"x" * 201 + b".csv", "it is too long: at most 32 steps, and a file's name of 200 bytes expected"),
        (b"a/" * 40 + b"a.csv", "it is too long: at most 32 steps, and a file's name of 200 bytes expected"),
        (b"init.lua", "a name that ends in one of these expected: csv, json, jsonl, log, txt"),
        (b"a.csv.exe", "a name that ends in one of these expected: csv, json, jsonl, log, txt"),
        (b"csv", "a name that ends in one of these expected: csv, json, jsonl, log, txt"),
        (b".csv", "a name that ends in one of these expected: csv, json, jsonl, log, txt"),
        (b"config.toml", "a name that ends in one of these expected: csv, json, jsonl, log, txt"),
        (b"a.png", "a name that ends in one of these expected: csv, json, jsonl, log, txt"),
    ],
)
def test_what_is_refused_says_why(name: bytes, reason: str) -> None:
    assert refusal(name) == reason


def test_kinds_ignore_case_and_binary_reads_know_more_of_them() -> None:
    assert places_of(FOLDER, b"A.CSV", TEXT_KINDS)
    for kind in b"png jpg jpeg gif svg webp bmp ico woff woff2 ttf otf pdf zip csv json jsonl txt log".split():
        assert places_of(FOLDER, b"a." + kind, BINARY_KINDS)


def test_the_folder_is_made_only_where_it_is_wanted(tmp_path: Path) -> None:
    place = FilePlace(FOLDER, ("deep", "a.csv"))
    with pytest.raises(FileNotFoundError), entered(tmp_path, place):
        pass
    with entered(tmp_path, place, make=True) as spot:
        assert (spot.name, spot.path) == ("a.csv", "jobs/prices/deep/a.csv")
    assert (tmp_path / FOLDER / "deep").is_dir()


def test_a_link_that_stays_inside_is_followed(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "real").mkdir(parents=True)
    (tmp_path / FOLDER / "alias").symlink_to("real")
    with entered(tmp_path, FilePlace(FOLDER, ("alias", "a.csv"))) as spot:
        assert spot.path == "jobs/prices/real/a.csv"


@pytest.mark.parametrize("target", ["../other", "/etc", "..", "../../shared"])
def test_a_link_that_leaves_the_jobs_folder_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / "jobs/other").mkdir()
    (tmp_path / FOLDER / "out").symlink_to(target)
    with (
        pytest.raises(Forbidden, match="it leads out of jobs/prices"),
        entered(tmp_path, FilePlace(FOLDER, ("out", "a"))),
    ):
        pass


def test_a_jobs_folder_that_is_linked_out_of_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "project/jobs").mkdir(parents=True)
    (tmp_path / "project" / FOLDER).symlink_to(tmp_path)
    with (
        pytest.raises(Forbidden, match="jobs/prices leads out of the project"),
        entered(tmp_path / "project", FilePlace(FOLDER, ("a.csv",))),
    ):
        pass


def test_a_link_that_is_put_there_after_the_look_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap that every check before an open loses to."""
    folder = tmp_path / FOLDER / "sub"
    folder.mkdir(parents=True)
    look = os.path.realpath

    def look_then_swap(path: str | Path) -> str:
        found = look(path)
        if str(path).endswith("a.csv"):
            folder.rmdir()
            folder.symlink_to("/etc")
        return found

    monkeypatch.setattr(os.path, "realpath", look_then_swap)
    with (
        pytest.raises(Forbidden, match="a link was put there"),
        entered(tmp_path, FilePlace(FOLDER, ("sub", "a.csv"))),
    ):
        pass


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with entered(tmp_path, FilePlace(FOLDER, ("a", "b", "c.csv")), make=True):
        pass
    with pytest.raises(FileNotFoundError), entered(tmp_path, FilePlace(FOLDER, ("a", "x", "c.csv"))):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_complaint_names_the_function_the_file_and_the_reason() -> None:
    assert complaint("fs_read", b"a.csv", PermissionError(13, "Permission denied")) == (
        "fs_read: 'a.csv': Permission denied"
    )
    assert complaint("fs_read", b"../a", Forbidden("no")) == "fs_read: '../a': no"
