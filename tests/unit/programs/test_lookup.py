"""A program is found on a fixed PATH or by its path, and told apart from one that takes its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.errors import CommandError
from spyweb.programs.runner import PATH, base_environment, find_program


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
