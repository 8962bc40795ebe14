"""How problems are shown."""

from __future__ import annotations

import json

import pytest

from spyweb.cli.output import Format
from spyweb.daemon.commands.check import show_problems
from spyweb.errors import Problem

PROBLEMS = [Problem("config.toml", 3, "port", "expected a number"), Problem("jobs/a.lua", None, None, "is no text")]


def test_each_problem_has_file_line_key_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    show_problems(PROBLEMS, Format.TABLE)
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split(maxsplit=3) == ["config.toml", "3", "port", "expected a number"]
    assert second.split(maxsplit=1) == ["jobs/a.lua", "is no text"]


def test_a_warning_is_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    show_problems([Problem("jobs/a.lua", 3, None, "defines run and calls it", is_warning=True)], Format.TABLE)
    assert "warning: defines run and calls it" in capsys.readouterr().out


def test_nothing_wrong_is_said_and_is_an_empty_array(capsys: pytest.CaptureFixture[str]) -> None:
    show_problems([], Format.TABLE)
    assert capsys.readouterr() == ("", "no problems found\n")
    show_problems([], Format.JSON)
    assert json.loads(capsys.readouterr().out) == []
