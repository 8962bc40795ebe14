"""`spyweb debug`: run a job and show everything that is known of the run; of a monitor job, what it would find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import cast

import typer
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.options import JobName, Output, project_of
from spyweb.cli.output import Format
from spyweb.daemon.commands.run import RunOptions, RunScreen, run_watched, show_json_lines
from spyweb.errors import ExitCode
from spyweb.settings.units import format_duration
from spyweb.views.runs import LogLine, RunEnded
from spyweb.words import counted

Found = Mapping[str, object]  # what a monitor job's debug run gives


def debug(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> ExitCode:
    """Run a job once and show all there is to see.

    When within the run each line came, CPU, generation, the reason and the whole traceback.  Of a job with
    tasks: what a run would do, and nothing is run.  Of a monitor job: one
    cycle up to the store, disabled or not, with the time and memory of each stage and the items; nothing is stored.
    """
    watch = show_json_lines if form is Format.JSON else DebugScreen()
    return run_watched(project_of(context), job, watch, RunOptions(debug=True))


class DebugScreen(RunScreen):
    """Shows a debug run as it goes; times count from the first line."""

    def __init__(self) -> None:
        super().__init__()
        self._first_ms: int | None = None

    def stamp(self, line: LogLine) -> str:
        self._first_ms = line.at_ms if self._first_ms is None else self._first_ms
        return f"+{(line.at_ms - self._first_ms) / 1000:8.3f}s"

    def end(self, ended: RunEnded) -> None:
        plan = plan_in(ended)
        if plan is not None:
            show_plan(plan)
            ended = replace(ended, result=None, note="nothing was run")
        found = _found_in(ended)
        if found is not None:
            show_found(found)
            ended = replace(ended, result=None, http_status=None, items_found=None)  # it has just been shown
        super().end(ended)
        output.show_fields(
            [
                ("run", "-" if ended.run is None else str(ended.run)),
                ("took", format_duration(ended.duration_ms)),
                ("CPU", format_duration(ended.cpu_ms)),
                ("generation", str(ended.generation or "-")),
                ("reason", ended.reason or "-"),
                ("globals", "reset: the VM was discarded" if ended.globals_reset else "kept"),
            ]
        )


def _found_in(ended: RunEnded) -> Found | None:
    result = ended.result
    is_found = isinstance(result, dict) and {"stages", "items", "files"} <= result.keys()
    return cast(Found, result) if is_found else None


def show_found(found: Found) -> None:
    stages = cast(Sequence[Found], found["stages"])
    items = cast(Sequence[Found], found["items"])
    output.show_table(("stage", "type", "status", "ms", "memory", "change", "error"), _stage_rows(stages), empty="")
    output.say("")
    if found.get("trouble"):
        output.show_verdict("error", f"the page could not be fetched: {found['trouble']}: {found['url']}")
    if items or not found.get("trouble"):
        output.show_table(*_item_rows(items), empty=_no_items(found))
    if items:
        output.note(f"{counted(len(items), 'item')} of {found['extracted']} that were extracted")
    for file in cast(Sequence[str], found["files"]):
        output.note(f"saved {file}")


def _no_items(found: Found) -> str:
    if found["extracted"] is None:
        return "the cycle ended before anything was extracted"
    return f"no items are left of {found['extracted']} that were extracted"


def _stage_rows(stages: Sequence[Found]) -> list[list[str]]:
    """Return a row for each stage up to the store, where a debug run ends."""
    names = [stage["name"] for stage in stages]
    return [_stage_row(stage) for stage in stages[: names.index("before_store") + 1]]


def _stage_row(stage: Found) -> list[str]:
    is_hook, ran = stage["type"] == "hook", stage["status"] != "inactive"
    shown = [str(stage[name]) for name in ("name", "type", "status")] + [f"{stage['duration_ms']:.1f}" if ran else "-"]
    memory = [_kib(stage["lua_mem_bytes"]), _kib(stage["mem_delta_bytes"])] if ran and is_hook else ["-", "-"]
    return [*shown, *memory, str(stage.get("error", ""))]


def _kib(size: object) -> str:
    return f"{cast(int, size) / 1024:.1f} KiB"


def _item_rows(items: Sequence[Found]) -> tuple[list[str], list[list[str]]]:
    fields = [cast(Mapping[str, str], item["fields"]) for item in items]
    names = list(dict.fromkeys(name for each in fields for name in each))
    rows = [
        [*(each.get(name, "") for name in names), ", ".join(cast(Sequence[str], item["matches"]))]
        for each, item in zip(fields, items, strict=True)
    ]
    return [*names, "keywords"], rows


Planned = Mapping[str, object]


def plan_in(ended: RunEnded) -> Sequence[Planned] | None:
    """Return the workflows that a debug run gives in place of running them, each with its tasks; None of other runs."""
    result = ended.result
    plan = result.get("plan") if isinstance(result, dict) and result.keys() == {"plan"} else None
    return cast(Sequence[Planned], plan) if isinstance(plan, list) else None


def show_plan(plan: Sequence[Planned]) -> None:
    for workflow in plan:
        if workflow.get("workflow"):
            output.show_branch(0, "", f"{workflow['workflow']}{_described(_rules(workflow))}")
        for step, tasks in groupby(sorted(_tasks(workflow), key=_step), key=_step):
            label = f"{step}."
            for task in tasks:
                output.show_branch(1, "", f"{label:<4}{task['task']}{_described(_facts(task))}")
                label = ""
        if workflow.get("more"):
            output.show_branch(1, "", f"and {workflow['more']} more")


def _tasks(workflow: Planned) -> Sequence[Planned]:
    return cast(Sequence[Planned], workflow["tasks"])


def _step(task: Planned) -> int:
    return cast(int, task["step"])


def _rules(workflow: Planned) -> list[str]:
    at_once = cast(int, workflow["max_parallel_tasks"])
    return [
        *([str(workflow["description"])] if workflow.get("description") else []),
        *([f"{at_once} at a time"] if at_once > 1 else []),
        *_timeout(workflow),
        *(["goes on after a failure"] if workflow["on_failure"] == "continue" else []),
    ]


def _facts(task: Planned) -> list[str]:
    needs = cast(Sequence[str], task.get("depends_on") or ())
    conditions = cast(Sequence[str], task.get("conditions") or ())
    retries = task.get("retries")
    return [
        *([f"after {', '.join(needs)}"] if needs else []),
        *conditions,
        *_timeout(task),
        *([counted(cast(int, retries), "retry", "retries")] if retries else []),
    ]


def _timeout(planned: Planned) -> list[str]:
    timeout_ms = planned.get("timeout_ms")
    return [f"at most {format_duration(cast(int, timeout_ms))}"] if timeout_ms else []


def _described(facts: Sequence[str]) -> str:
    return f" ({'; '.join(facts)})" if facts else ""
