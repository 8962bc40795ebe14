"""The end of a log file, and what is written to it from now on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spyweb.errors import NoAccess
from spyweb.logs.tail import BLOCK, INTERVAL, LogTail, follow, last_lines
from tests.fakes.clock import FakeClock


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "hooks.log"


@pytest.fixture
def tail(log: Path) -> Iterator[LogTail]:
    log.write_text("old\n")
    tail = LogTail(log)
    yield tail
    tail.close()


def test_the_last_lines_come_oldest_first(log: Path) -> None:
    log.write_text("one\ntwo\nthree\n")
    assert last_lines(log, 2) == ["two", "three"]


def test_asking_for_more_lines_than_there_are_gives_all(log: Path) -> None:
    log.write_text("one\n\ntwo")
    assert last_lines(log, 10) == ["one", "", "two"]


def test_a_file_without_line_breaks_is_not_read_whole(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyweb.logs.tail.LARGEST", 2 * BLOCK)
    read: list[int] = []
    pread = os.pread

    def count(file: int, size: int, at: int) -> bytes:
        read.append(size)
        return pread(file, size, at)

    monkeypatch.setattr("os.pread", count)
    log.write_bytes(bytes(10 * BLOCK))
    assert last_lines(log, 5) == ["\0" * (2 * BLOCK)]
    assert sum(read) == 2 * BLOCK


def test_no_file_and_an_empty_file_have_no_lines(log: Path) -> None:
    assert last_lines(log, 10) == []
    log.touch()
    assert last_lines(log, 10) == []


@pytest.mark.parametrize("width", [1, 1000, BLOCK, BLOCK + 1])
def test_lines_are_whole_wherever_blocks_end(log: Path, width: int) -> None:
    log.write_text("".join(f"{n}{'x' * width}\n" for n in range(5)))
    assert [line[0] for line in last_lines(log, 3)] == ["2", "3", "4"]
    assert {len(line) for line in last_lines(log, 3)} == {width + 1}


def test_a_line_that_is_no_text_is_shown_all_the_same(log: Path) -> None:
    log.write_bytes(b"\xff\n")
    assert last_lines(log, 1) == ["\ufffd"]


@pytest.mark.parametrize(("make", "words"), [(Path.mkdir, "Is a directory"), (os.mkfifo, "not a regular file")])
def test_what_is_no_file_is_refused_and_not_waited_for(log: Path, make: Callable[[Path], None], words: str) -> None:
    make(log)
    with pytest.raises(NoAccess, match=words):
        last_lines(log, 10)
    with pytest.raises(NoAccess, match=words):
        LogTail(log)


def test_a_file_in_place_of_the_folder_leaves_no_lines(log: Path) -> None:
    log.touch()
    assert last_lines(log / "hooks.log", 10) == []
    assert LogTail(log / "hooks.log").read_new() == []


def test_only_what_is_added_is_followed(log: Path, tail: LogTail) -> None:
    assert tail.read_new() == []
    with log.open("a") as file:
        file.write("new\n")
    assert tail.read_new() == ["new"]
    assert tail.read_new() == []


def test_half_a_line_waits_for_its_end(log: Path, tail: LogTail) -> None:
    with log.open("a") as file:
        file.write("ha")
        file.flush()
        assert tail.read_new() == []
        file.write("lf\nnext")
        file.flush()
        assert tail.read_new() == ["half"]


def test_rotation_loses_no_line(log: Path, tail: LogTail) -> None:
    with log.open("a") as file:
        file.write("last of the old\n")
    log.rename(log.with_suffix(".1"))
    assert tail.read_new() == ["last of the old"]
    log.write_text("first of the new\n")
    assert tail.read_new() == ["first of the new"]


def test_a_file_that_was_cut_is_read_from_its_start(log: Path, tail: LogTail) -> None:
    log.write_text("a\n")
    assert tail.read_new() == ["a"]


def test_a_file_that_comes_later_is_followed_from_its_first_line(log: Path) -> None:
    tail = LogTail(log)
    assert tail.read_new() == []
    log.write_text("first\n")
    assert tail.read_new() == ["first"]
    tail.close()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def test_following_looks_again_at_every_interval(log: Path) -> None:
    clock, seen = FakeClock(), list[str]()

    async def watch() -> None:
        async for line in follow(log, clock):
            seen.append(line)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watch())
        await clock.turn()
        append(log, "a\nb\n")
        assert seen == []
        await clock.turn(INTERVAL)
        assert seen == ["a", "b"]
        task.cancel()
