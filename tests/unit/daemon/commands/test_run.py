"""What a person sees of a run as it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from spyweb.daemon.commands.run import (
    DebugPlan,
    DebugScreen,
    RunScreen,
    given_values,
    read_result,
    read_values,
    show_plan,
)
from spyweb.errors import ConfigError, Refused
from spyweb.model import Failure, JobId, Outcome, RunId
from spyweb.monitor.context import STAGES, Stage
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


BEFORE = Stage(name="before_fetch", duration_ms=1.26, memory=2048, memory_delta=512)
FETCH = Stage(name="fetch", duration_ms=250.0, error="http status: 403")
ITEM = {"fields": {"title": "Lamp", "price": "5"}, "matches": ["lamp", "sale"]}
OTHER = {"fields": {"title": "Desk", "colour": "red"}, "matches": []}


def ended(*items: object, files: tuple[str, ...] = (), trouble: str = "", extracted: int | None = 3) -> RunEnded:
    stages = {name: Stage(name=name) for name in STAGES} | {"before_fetch": BEFORE, "fetch": FETCH}
    result = {
        "stages": [stage.shown() for stage in stages.values()],
        "url": "http://shop.example/",
        "http_status": 403 if trouble else 200,
        "trouble": trouble,
        "extracted": extracted,
        "items": list(items),
        "files": list(files),
    }
    return RunEnded(job=JobId("shop"), run=RunId(9), outcome=Outcome.SUCCESS, duration_ms=300, result=result)


def test_stages_are_shown_up_to_the_store_with_time_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    DebugScreen().end(ended(ITEM))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["stage", "type", "status", "ms", "memory", "change", "error"]
    assert lines[1] == ["before_fetch", "hook", "success", "1.3", "2.0", "KiB", "0.5", "KiB"]
    assert lines[3] == ["fetch", "internal", "error", "250.0", "-", "-", "http", "status:", "403"]
    assert lines[10][0] == "before_store"
    assert not lines[11]


def test_items_are_shown_with_every_field_that_one_of_them_has(capsys: pytest.CaptureFixture[str]) -> None:
    DebugScreen().end(ended(ITEM, OTHER, files=("jobs/shop/shop-fields.json",)))
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [line.split() for line in lines[12:15]] == [
        ["title", "price", "colour", "keywords"],
        ["Lamp", "5", "lamp,", "sale"],
        ["Desk", "red"],
    ]
    assert shown.err.splitlines() == ["2 items of 3 that were extracted", "saved jobs/shop/shop-fields.json"]


def test_a_page_that_could_not_be_fetched_is_told_and_no_items_are_spoken_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    DebugScreen().end(ended(trouble="http status: 403", extracted=0))
    shown = capsys.readouterr()
    assert "error the page could not be fetched: http status: 403: http://shop.example/" in shown.out.splitlines()
    assert "items" not in shown.out + shown.err


def test_a_cycle_that_a_hook_ended_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    DebugScreen().end(ended(extracted=None))
    assert capsys.readouterr().err == "the cycle ended before anything was extracted\n"


def returning(result: object) -> RunEnded:
    return RunEnded(job=JobId("a"), run=None, outcome=Outcome.SUCCESS, result=result)


def test_a_plan_is_told_from_what_a_script_returns() -> None:
    plan = {"plan": [{"workflow": "a", "on_failure": "stop", "max_parallel_tasks": 1, "tasks": {}}]}
    assert read_result(returning(plan), DebugPlan)
    assert [read_result(returning(other), DebugPlan) for other in (None, "x", {"plan": 1}, {**plan, "x": 1}, {})] == [
        None
    ] * 5


def test_steps_are_in_their_order_with_what_there_is_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(
        msgspec.convert(
            {
                "plan": [
                    {
                        "workflow": "release",
                        "description": "ships it",
                        "on_failure": "continue",
                        "max_parallel_tasks": 2,
                        "timeout_ms": 60_000,
                        "tasks": [
                            {"task": "build", "step": 1, "retries": 1},
                            {"task": "lint", "step": 1, "timeout_ms": 1_500, "retries": 3},
                            {"task": "push", "step": 2, "depends_on": ["build", "lint"], "conditions": ["run_if"]},
                        ],
                    },
                    {
                        "workflow": "",
                        "on_failure": "stop",
                        "max_parallel_tasks": 1,
                        "tasks": [{"task": "a", "step": 1}],
                        "more": 9_999,
                    },
                ]
            },
            DebugPlan,
        )
    )
    assert capsys.readouterr().out.splitlines() == [
        "release (ships it; 2 at a time; at most 1m; goes on after a failure)",
        "  1.  build (1 retry)",
        "      lint (at most 1.5s; 3 retries)",
        "  2.  push (after build, lint; run_if)",
        "  1.  a",
        "  and 9999 more",
    ]
