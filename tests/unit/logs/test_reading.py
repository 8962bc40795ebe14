"""The end of a log file, and the lines of a span of time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import NoAccess
from spyweb.logs.output import stamp
from spyweb.logs.reading import BLOCK, LogRange, last_lines, lines_between


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "hooks.log"


@pytest.mark.parametrize(
    ("content", "count", "lines"),
    [
        (None, 10, []),
        (b"", 10, []),
        (b"one\ntwo\nthree\n", 2, ["two", "three"]),
        (b"one\n\ntwo", 10, ["one", "", "two"]),
        (b"\xff\n", 1, ["\ufffd"]),
    ],
)
def test_the_last_lines_come_oldest_first(log: Path, content: bytes | None, count: int, lines: list[str]) -> None:
    if content is not None:
        log.write_bytes(content)
    assert last_lines(log, count) == lines


def test_a_file_without_line_breaks_is_not_read_whole(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyweb.logs.reading.LARGEST", 2 * BLOCK)
    read: list[int] = []
    pread = os.pread

    def count(file: int, size: int, at: int) -> bytes:
        read.append(size)
        return pread(file, size, at)

    monkeypatch.setattr("os.pread", count)
    log.write_bytes(bytes(10 * BLOCK))
    assert last_lines(log, 5) == ["\0" * (2 * BLOCK)]
    assert sum(read) == 2 * BLOCK


@pytest.mark.parametrize("width", [1, 1000, BLOCK, BLOCK + 1])
def test_lines_are_whole_wherever_blocks_end(log: Path, width: int) -> None:
    log.write_text("".join(f"{n}{'x' * width}\n" for n in range(5)))
    assert [line[0] for line in last_lines(log, 3)] == ["2", "3", "4"]
    assert {len(line) for line in last_lines(log, 3)} == {width + 1}


@pytest.mark.parametrize(("make", "words"), [(Path.mkdir, "Is a directory"), (os.mkfifo, "not a regular file")])
def test_what_is_no_file_is_refused_and_not_waited_for(log: Path, make: Callable[[Path], None], words: str) -> None:
    make(log)
    with pytest.raises(NoAccess, match=words):
        last_lines(log, 10)


def test_a_file_in_place_of_the_folder_leaves_no_lines(log: Path) -> None:
    log.touch()
    assert last_lines(log / "hooks.log", 10) == []


BEGIN_MS = 1_767_225_600_000


def line(at: int, text: str = "x") -> str:
    return f"{stamp(BEGIN_MS + at)} INFO {text}\n"


def found(log: Path, first: int, last: int, **most: int) -> LogRange:
    return lines_between(log, BEGIN_MS + first, BEGIN_MS + last, **most)


def test_the_lines_of_a_run_are_those_between_its_beginning_and_its_end(log: Path) -> None:
    log.write_text("".join(line(at, f"line {at}") for at in range(0, 1_000, 10)))

    assert [text.rpartition(" ")[2] for text in found(log, 100, 130).lines] == ["100", "110", "120", "130"]
    assert found(log, 101, 109).lines == ()
    assert len(found(log, -5, 5_000).lines) == 100
    assert found(log, 2_000, 3_000).lines == found(log, -9, -5).lines == ()


def test_indented_lines_go_with_the_line_above_them(log: Path) -> None:
    log.write_text(line(1) + "    more of it\n    2026-01-01T00:00:00.009Z no stamp\n" + line(5))

    assert [text[:8] for text in found(log, 1, 4).lines] == ["2026-01-", "    more", "    2026"]
    assert len(found(log, 5, 9).lines) == 1


def test_a_run_that_logged_while_the_file_was_rotated_has_its_lines_of_both(log: Path) -> None:
    log.with_name("hooks.log.2").write_text(line(1, "a"))
    log.with_name("hooks.log.1").write_text(line(5, "b") + line(6, "c"))
    log.write_text(line(7, "d") + line(9, "e"))

    assert [text[-1] for text in found(log, 6, 8).lines] == ["c", "d"]
    assert [text[-1] for text in found(log, 0, 8).lines] == ["a", "b", "c", "d"]


def test_of_very_many_lines_the_latest_are_shown(log: Path) -> None:
    log.write_text("".join(line(at, f"{at:04}") for at in range(1_000)))
    shown = found(log, 0, 999, most=500)

    assert shown.is_cut
    assert shown.lines[-1].endswith("0999")
    assert all(text.startswith("2026") for text in shown.lines)
    assert not found(log, 0, 5).is_cut


def test_a_log_that_is_not_there_or_no_file_has_no_lines(log: Path) -> None:
    assert found(log, 0, 9) == LogRange()
    os.mkfifo(log)
    assert found(log, 0, 9) == LogRange()


def test_bytes_that_are_no_text_and_lines_longer_than_a_block_are_borne(log: Path) -> None:
    log.write_bytes(line(1).encode() + b"    \xff" + b"y" * 200_000 + b"\n" + line(5, "end").encode())

    assert [text[-3:] for text in found(log, 5, 9).lines] == ["end"]
    assert len(found(log, 1, 4).lines) == 2


@given(
    st.lists(st.integers(0, 60), max_size=60).map(sorted), st.integers(-2, 62), st.integers(-2, 62), st.integers(0, 3)
)
def test_the_lines_found_are_those_of_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], first: int, last: int, width: int
) -> None:
    log = tmp_path_factory.mktemp("logs") / "hooks.log"
    log.write_text("".join(line(at, "x" * (10**width)) for at in times))

    assert len(found(log, first, last).lines) == sum(first <= at <= last for at in times)
