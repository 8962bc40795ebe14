from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spyweb.ops.files.files import KEPT, MAX_BYTES, is_full, kept_aside, name_aside, rotate

AT_MS = 1_778_769_005_999  # 2026-05-14T14:30:05.999Z


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


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


def test_five_are_kept_the_oldest_goes(tmp_path: Path, folder: int) -> None:
    for number in range(KEPT + 2):
        (tmp_path / "data.csv").write_text(str(number))
        rotate(folder, "data.csv", AT_MS + 1000 * number)
    contents = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert contents == {f"data.20260514-14300{5 + number}.csv": str(number) for number in (2, 3, 4)} | {
        "data.20260514-143010.csv": "5",
        "data.20260514-143011.csv": "6",
    }


def test_a_second_one_in_the_same_second_takes_nothing_away(tmp_path: Path, folder: int) -> None:
    for text in ("first", "second"):
        (tmp_path / "data.csv").write_text(text)
        rotate(folder, "data.csv", AT_MS)
    assert (tmp_path / "data.20260514-143005.csv").read_text() == "first"
    assert (tmp_path / "data.20260514-143005-2.csv").read_text() == "second"


def test_only_its_own_older_files_are_counted_oldest_first() -> None:
    own = ["data.20260514-143005.csv", "data.20260514-143005-2.csv", "data.20260514-143005-10.csv"]
    others = ["data.csv", "data.20260514.csv", "other.20260514-143005.csv", "data.20260514-143005.txt", "data.x.csv"]
    assert kept_aside([*reversed(own), *others], "data.csv") == own
