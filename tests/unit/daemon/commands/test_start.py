"""Becoming the daemon."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from spyweb.daemon.commands import start
from tests.fakes.command import spyweb


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What `start` became, instead of becoming it."""
    (tmp_path / "jobs").mkdir()
    commands: list[list[str]] = []
    monkeypatch.setattr(start, "become", commands.append)
    return commands


def test_start_becomes_the_daemon_of_the_project(became: list[list[str]], tmp_path: Path) -> None:
    assert spyweb("start", root=tmp_path).code == 0
    (command,) = became
    assert command[0] == sys.executable
    assert command[-6:] == ["-m", "spyweb.daemon", "--root", str(tmp_path), "--flags", "{}"]


def test_only_what_was_given_is_passed_on(became: list[list[str]], tmp_path: Path) -> None:
    spyweb("start", "--host", "::1", "--port", "0", "-n", "-qq", "--workers", "3", "--repair", root=tmp_path)
    assert json.loads(became[0][-1]) == {
        "host": "::1",
        "port": 0,
        "no_server": True,
        "workers": 3,
        "log_level": "error",
        "repair": True,
    }


@pytest.mark.parametrize(("words", "level"), [(["-q"], "warning"), (["-qq"], "error"), (["-q", "-q", "-q"], "error")])
def test_quiet_says_less(became: list[list[str]], tmp_path: Path, words: list[str], level: str) -> None:
    spyweb("start", *words, root=tmp_path)
    assert json.loads(became[0][-1]) == {"log_level": level}


def test_the_project_may_be_named_from_where_one_stands(
    became: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p" / "jobs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    spyweb("start", root=Path("p"))
    assert became[0][-3] == str(tmp_path / "p")


def test_a_folder_that_is_no_project_is_refused_and_left_as_it_is(became: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "jobs").rmdir()
    answer = spyweb("start", root=tmp_path)
    why = "no project: it has no jobs/, jobs.toml or config.toml; `spyweb init` makes one"
    assert (answer.code, answer.err) == (2, f"spyweb: {tmp_path}: {why}\n")
    assert (became, list(tmp_path.iterdir())) == ([], [])
    (tmp_path / "jobs.toml").touch()
    assert spyweb("start", root=tmp_path).code == 0


def test_a_wrong_setting_is_told_before_anything_starts(became: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[server]\nport = "x"\n')
    answer = spyweb("start", root=tmp_path)
    assert (answer.code, became) == (2, [])
    assert answer.err.startswith("spyweb: config.toml:2: ")


def test_somebody_elses_data_is_told_with_the_way_in(
    became: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    answer = spyweb("start", root=tmp_path)
    assert (answer.code, became) == (2, [])
    assert "use `sudo -u " in answer.err
    assert len(answer.err.splitlines()) == 1
