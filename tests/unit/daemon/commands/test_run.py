"""What a person sees of a run as it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spyweb.daemon.commands.run import RunScreen, given_values, read_values
from spyweb.errors import ConfigError, Refused
from spyweb.model import Failure, JobId, Outcome, RunId
from spyweb.views.runs import RunEnded


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, ["success prices in 12ms"]),
        ({"result": "fine"}, ["returned fine", "success prices in 12ms"]),
        ({"http_status": 404, "items_found": 0}, ["success prices in 12ms: 404, 0 items"]),
        (
            {"storage_errors": 3, "note": "held the loop 2.8 s"},
            ["success prices in 12ms: 3 storage errors; held the loop 2.8 s"],
        ),
        (
            {"outcome": Outcome.FAILED, "failure": Failure.CPU, "reason": "a.lua:1: too much"},
            ["a.lua:1: too much", "failed prices (cpu) in 12ms"],
        ),
    ],
)
def test_the_end_of_a_run_says_what_there_is_to_say(
    changes: dict[str, Any], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"job": JobId("prices"), "run": RunId(1), "outcome": Outcome.SUCCESS, "duration_ms": 12}
    RunScreen()(RunEnded(**{**given, **changes}))
    assert capsys.readouterr().out.splitlines() == lines


def test_a_later_variable_is_stronger_and_a_file_the_weakest(tmp_path: Path) -> None:
    (tmp_path / "prod.toml").write_text("a = 0\nb.c = 0\nd = 0\n")
    assert given_values(tmp_path / "prod.toml", ["a=1", "b.c=2", "a=3"]) == {"a": 3, "b": {"c": 2}, "d": 0}
    assert given_values(None, []) == {}


@pytest.mark.parametrize("variable", ["a", f"a={'x' * 70_000}"])
def test_what_can_not_be_given_is_refused(variable: str) -> None:
    with pytest.raises(Refused):
        given_values(None, [variable])


@pytest.mark.parametrize("content", [None, b"host = ", b"\xff\xfe"])
def test_a_file_that_is_none_is_told_with_its_name(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "prod.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"prod\.toml"):
        read_values(tmp_path / "prod.toml")
