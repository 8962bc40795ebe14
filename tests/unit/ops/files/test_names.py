from __future__ import annotations

import pytest

from spyweb.files import Forbidden
from spyweb.ops.files.names import BINARY_KINDS, TEXT_KINDS, FilePlace, complaint, places_of, steps_of

ROOT, FOLDER = "/project", "jobs/prices"


def refusal(name: bytes) -> str:
    with pytest.raises(Forbidden) as refused:
        places_of(ROOT, FOLDER, name, TEXT_KINDS)
    return str(refused.value)


def test_a_name_is_looked_for_in_the_jobs_folder_and_then_in_the_shared_one() -> None:
    assert places_of(ROOT, FOLDER, b"a/b.csv", TEXT_KINDS) == (
        FilePlace(ROOT, FOLDER, ("a", "b.csv")),
        FilePlace(ROOT, "shared", ("a", "b.csv")),
    )


def test_a_name_that_begins_with_shared_means_the_shared_folder_alone() -> None:
    shared = FilePlace(ROOT, "shared", ("a.csv",))
    assert places_of(ROOT, FOLDER, b"shared/a.csv", TEXT_KINDS) == (shared, shared)
    assert places_of(ROOT, FOLDER, b"./shared//a.csv", TEXT_KINDS) == (shared, shared)
    assert places_of(ROOT, FOLDER, b"shared.csv", TEXT_KINDS)[0] == FilePlace(ROOT, FOLDER, ("shared.csv",))


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
    assert places_of(ROOT, FOLDER, b"A.CSV", TEXT_KINDS)
    for kind in b"png jpg jpeg gif svg webp bmp ico woff woff2 ttf otf pdf zip csv json jsonl txt log".split():
        assert places_of(ROOT, FOLDER, b"a." + kind, BINARY_KINDS)


def test_a_complaint_names_the_function_the_file_and_the_reason() -> None:
    assert complaint("fs_read", b"a.csv", PermissionError(13, "Permission denied")) == (
        "fs_read: 'a.csv': Permission denied"
    )
    assert complaint("fs_read", b"../a", Forbidden("no")) == "fs_read: '../a': no"
