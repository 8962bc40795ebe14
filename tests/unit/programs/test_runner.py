"""A program is found on a fixed PATH or by its path, and told apart from one that takes its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.errors import CommandError
from spyweb.limits import LOG_BYTES_PER_S
from spyweb.programs.runner import PATH, base_environment, find_program
from spyweb.programs.running import BURST_S, LINES_PER_S, LONGEST_LINE, LineCredit, OutputCollector
from tests.fakes.clock import FakeClock


def program(path: Path, mode: int = 0o755) -> bytes:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return os.fsencode(path)


def test_a_name_is_looked_for_on_a_path_that_is_not_the_daemons(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    path, _ = find_program(b"sh", b"/")
    assert os.path.dirname(path).decode() in PATH.split(":")
    assert base_environment()[b"PATH"] == PATH.encode()


def test_a_name_with_a_slash_is_relative_to_the_workdir(tmp_path: Path) -> None:
    expected = program(tmp_path / "do")
    assert find_program(b"./do", os.fsencode(tmp_path))[0] == expected
    assert find_program(b"x/../do", os.fsencode(tmp_path))[0] == expected
    assert find_program(expected, b"/")[0] == expected
    assert find_program(b"/" + expected, b"/")[0] == expected  # as the policy spells it


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"no-such-program", "no-such-program: not found"),
        (b"/no/such", "/no/such: not found"),
        (b"", "the name of the program is empty"),
        (b"/etc", "/etc: not permitted to execute it"),
        (b"/etc/passwd", "/etc/passwd: not permitted to execute it"),
        (b"/etc/passwd/x", "/etc/passwd/x: not found"),
    ],
)
def test_what_can_not_be_executed_says_so(name: bytes, reason: str) -> None:
    with pytest.raises(CommandError) as caught:
        find_program(name, b"/")
    assert str(caught.value) == reason


def test_a_changed_file_is_another_version(tmp_path: Path) -> None:
    name = program(tmp_path / "do")
    _, first = find_program(name, b"/")
    assert find_program(name, b"/")[1] == first
    with open(name, "a") as file:
        file.write("exit 1\n")
    assert find_program(name, b"/")[1] != first


BURST = int(LINES_PER_S * BURST_S)


class Output:
    def __init__(self, most: int = 1_000_000) -> None:
        self.clock = FakeClock()
        self.lines: list[bytes] = []
        self.collector = OutputCollector(most, LineCredit(self.clock), self.lines.append)


def test_what_is_kept_ends_at_the_limit_and_the_rest_is_counted() -> None:
    output = Output(most=5)
    for piece in (b"abc", b"defg", b"hi"):
        output.collector.take(piece)
    assert (output.collector.kept, output.collector.dropped) == (b"abcde", 4)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_in_whatever_pieces_they_come(size: int) -> None:
    output = Output()
    text = b"one\n\ntwo three\nlast"
    for begin in range(0, len(text), size):
        output.collector.take(text[begin : begin + size])
    assert output.lines == [b"one", b"", b"two three"]
    output.collector.close()
    assert output.lines == [b"one", b"", b"two three", b"last"]


@pytest.mark.parametrize("size", [100, LONGEST_LINE - 1, LONGEST_LINE, LONGEST_LINE + 1, 50_000])
def test_a_long_line_is_cut_for_the_log_alone(size: int) -> None:
    output = Output()
    text = b"x" * 20_000 + b"\n" + b"y" * 10_000
    for begin in range(0, len(text), size):
        output.collector.take(text[begin : begin + size])
    output.collector.close()
    assert output.lines == [b"x" * LONGEST_LINE, b"y" * LONGEST_LINE]
    assert output.collector.kept == text


def test_lines_over_the_rate_are_counted_and_time_gives_new_credit() -> None:
    output = Output()
    output.collector.take(b"a\n" * (BURST + 7))
    assert (len(output.lines), output.collector.untold) == (BURST, 7)
    output.clock.advance(0.1)
    output.collector.take(b"b\n" * LINES_PER_S)
    assert output.lines.count(b"b") == LINES_PER_S // 10
    assert len(output.lines) + output.collector.untold == BURST + 7 + LINES_PER_S


def test_a_line_that_began_before_the_credit_was_used_up_is_counted_once() -> None:
    output = Output()
    output.collector.take(b"a\n" * BURST + b"beg")
    output.collector.take(b"in\nnext")
    output.collector.close()
    assert (len(output.lines), output.collector.untold) == (BURST, 2)


def test_long_lines_use_up_the_bytes_first() -> None:
    output = Output()
    output.collector.take((b"x" * LONGEST_LINE + b"\n") * 1_000)
    assert len(output.lines) == int(LOG_BYTES_PER_S * BURST_S) // LONGEST_LINE
