"""`spyweb run` and `debug`: run a job once in the foreground; if a daemon runs, the daemon runs the job.

`debug` shows all details of a run; of a monitor job the items that it would find, of tasks the plan.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, of_job
from spyweb.cli.options import JobName, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, find_in
from spyweb.errors import ConfigError, ExitCode, LockHeld, Problem, Refused
from spyweb.model import JobId, Outcome
from spyweb.settings.script_values import merge, parse_variable, to_text, values_table
from spyweb.settings.tables import read_toml
from spyweb.settings.units import format_duration
from spyweb.subjects.runs.commands import TaskTree
from spyweb.views.jobs import to_json
from spyweb.views.runs import (
    LogLine,
    RunEnded,
    RunEvent,
    TaskView,
    describe_failure,
    describe_page,
    describe_storage_errors,
    event_from_json,
    event_to_json,
)
from spyweb.words import counted

STARTING_S, AGAIN_S = 10.0, 0.1  # how long a daemon may take to start, and the time between two questions

T = TypeVar("T")
Watcher = Callable[[RunEvent], None]
ValuesFile = Annotated[
    Path | None, typer.Option("--values", metavar="FILE", help="A TOML file with values that replace the script's own.")
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="A.B=VALUE", help="One value, stronger than all others: TOML or text."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, and log what would be done.")]
AuditFlag = Annotated[bool, typer.Option("--audit", help="Show the permissions that the run used, for config.toml.")]


def run(  # noqa: PLR0913 - each parameter is an option
    context: typer.Context,
    job: JobName,
    file: ValuesFile = None,
    var: Variables = None,
    audit: AuditFlag = False,
    dry_run: DryRun = False,
    form: Output = Format.TABLE,
) -> ExitCode:
    """Run a job once and wait for its end.

    Shows the job's log, its result and how long it took.  Where a daemon runs, the daemon runs the job.  The run is
    recorded as manual and moves no schedule.  --audit prints the permissions that the run used, as a block for
    config.toml.  --dry-run reads as always but changes nothing: file.* and commands log what they would do, stored
    values are forgotten at the end, and everything else that writes is an error.
    """
    watch = show_json_lines if form is Format.JSON else RunScreen()
    asked = RunOptions(audit=audit, dry_run=dry_run, values=given_values(file, var or []))
    return run_watched(project_of(context), job, watch, asked)


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of a manual run."""

    debug: bool = False
    audit: bool = False
    dry_run: bool = False
    values: Mapping[str, object] = field(default_factory=dict)


def run_watched(project: Project, name_or_id: str, watch: Watcher, options: RunOptions) -> ExitCode:
    """Run a job, and show each event as it comes; the last event is the end of the run.

    Waits for a daemon that is starting: it takes the lock before it answers, and answers before its jobs are loaded.
    """
    deadline = time.monotonic() + STARTING_S
    while True:
        daemon = project.find_daemon()
        try:
            if daemon is None:
                ended = _run_here(project, name_or_id, watch, options)
                break
            job = find_in(daemon.jobs(), name_or_id)
        except (LockHeld, Refused) as error:
            may_be_starting = isinstance(error, LockHeld) if daemon is None else not daemon.is_ready()
            if not may_be_starting or time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)
        else:
            ended = run_in_daemon(daemon, job, watch, options)
            break
    return ExitCode.OK if ended.outcome in (Outcome.SUCCESS, Outcome.SKIPPED) else ExitCode.FAILED


def run_in_daemon(daemon: DaemonClient, job: JobId, watch: Watcher, options: RunOptions) -> RunEnded:
    """Have a daemon run a job; call `watch` with each log line as it comes, then with the end of the run."""
    flags = {"debug": options.debug, "audit": options.audit, "dry_run": options.dry_run}
    asked = "&".join(f"{name}=1" for name, is_set in flags.items() if is_set)
    body = msgspec.json.encode(options.values) if options.values else None
    target = of_job(job, "run")
    for line in daemon.lines(f"{target}?{asked}" if asked else target, method="POST", body=body, timeout=None):
        with daemon.translated_errors():
            fields = msgspec.json.decode(line, type=dict[str, object])
            event = None if fields.get("event") == "error" else event_from_json(line)
        if event is None:
            raise Refused(str(fields.get("error")))
        watch(event)
        if isinstance(event, RunEnded):
            return event
    raise Refused(f"{daemon.cut_off('the end of the run')}: `spyweb runs` shows how it ended")


def _run_here(project: Project, name_or_id: str, watch: Watcher, options: RunOptions) -> RunEnded:
    """Run a job without a daemon, with workers and a store of this process, under the lock."""
    from spyweb.daemon.foreground import run_once  # no other command needs the engine

    output.log_only_errors()
    job = find_in(project.offline.jobs(), name_or_id)
    run_it = run_once(
        project.root, job, watch, lambda count: output.note(f"sending {counted(count, 'message')}"), **asdict(options)
    )
    return asyncio.run(run_it)


def show_json_lines(event: RunEvent) -> None:
    output.show_json_line(event_to_json(event))


class RunScreen:
    """Shows a run as it goes, for people."""

    def __init__(self) -> None:
        self._tree = TaskTree()

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, TaskView):
            self._tree.show(event)
            return
        self._tree.hide_passing()
        if isinstance(event, LogLine):
            output.show_log_line(self.stamp(event), event.level, event.text)
            self._tree.show_passing()
        else:
            self.end(event)

    def stamp(self, line: LogLine) -> str:
        return output.log_stamp(line.at_ms)

    def end(self, ended: RunEnded) -> None:
        if ended.result is not None:
            shown = ended.result if isinstance(ended.result, str) else to_json(ended.result).decode()
            output.say(f"returned {shown}")
        if ended.outcome is not Outcome.SUCCESS and (why := describe_failure(ended.reason, ended.traceback)):
            output.say(why)
        cause = f" ({ended.failure})" if ended.failure else ""
        more = "; ".join(
            filter(None, (describe_storage_errors(ended.storage_errors), describe_page(ended), ended.note))
        )
        took = f"{ended.job}{cause} in {format_duration(ended.duration_ms)}"
        output.show_verdict(ended.outcome, f"{took}: {more}" if more else took)
        if ended.permissions:
            output.say(f"\n{ended.permissions}")


def given_values(file: Path | None, variables: Sequence[str]) -> Mapping[str, object]:
    """Return the values; the last variable is the strongest.  Raises Refused, or ConfigError when the file is wrong."""
    try:
        values = merge([*map(parse_variable, reversed(variables)), read_values(file) if file else {}])
        to_text(values)
    except ValueError as error:
        raise Refused(str(error)) from error
    return values


def read_values(path: Path) -> Mapping[str, object]:
    """Return the values of a TOML file.  Raises ConfigError for one that can't be read."""
    table = read_toml("", str(path))
    if isinstance(table, Problem):
        raise ConfigError([table])
    return values_table(table.values)


def debug(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> ExitCode:
    """Run a job once with all details.

    Shows when each line was logged, CPU time, generation, the reason and the whole traceback.  A job with tasks is not
    run: its plan is shown.  A monitor job runs one cycle, also when it is disabled, and shows the time and memory of
    each stage and the items; nothing is stored.
    """
    watch = show_json_lines if form is Format.JSON else DebugScreen()
    return run_watched(project_of(context), job, watch, RunOptions(debug=True))


class FoundStage(Struct):
    """One stage of a monitor's cycle."""

    name: str
    type: str
    status: str
    duration_ms: float
    lua_mem_bytes: int
    mem_delta_bytes: int
    error: str = ""


class FoundItem(Struct):
    fields: dict[str, str]
    matches: list[str]


class DebugFindings(Struct):
    """The result of a debug run of a monitor job."""

    stages: list[FoundStage]
    items: list[FoundItem]
    files: list[str]
    url: str
    trouble: str
    extracted: int | None


class PlannedTask(Struct):
    task: str
    step: int
    depends_on: list[str] | dict[str, str] = []
    conditions: list[str] = []
    retries: int = 0
    timeout_ms: int = 0


class PlannedWorkflow(Struct):
    """The plan of a workflow, which a debug run shows instead of running it."""

    on_failure: str
    max_parallel_tasks: int
    tasks: list[PlannedTask] | dict[str, str]  # a dict is an empty table of Lua
    workflow: str = ""
    description: str = ""
    timeout_ms: int = 0
    more: int = 0


class DebugPlan(Struct, forbid_unknown_fields=True):
    plan: list[PlannedWorkflow]


class DebugScreen(RunScreen):
    """Shows a debug run as it goes; times count from the first line."""

    def __init__(self) -> None:
        super().__init__()
        self._first_ms: int | None = None

    def stamp(self, line: LogLine) -> str:
        self._first_ms = line.at_ms if self._first_ms is None else self._first_ms
        return f"+{(line.at_ms - self._first_ms) / 1000:8.3f}s"

    def end(self, ended: RunEnded) -> None:
        if plan := read_result(ended, DebugPlan):
            show_plan(plan)
            ended = replace(ended, result=None, note="nothing was run")
        elif found := read_result(ended, DebugFindings):
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


def read_result(ended: RunEnded, kind: type[T]) -> T | None:
    """Return the result of a debug run as this type, or None when it is the script's own result."""
    try:
        return msgspec.convert(ended.result, kind)
    except msgspec.ValidationError:
        return None


def show_found(found: DebugFindings) -> None:
    names = [stage.name for stage in found.stages]
    rows = []
    for stage in found.stages[: names.index("before_store") + 1]:  # where a debug run ends
        ran = stage.status != "inactive"
        memory = ["-", "-"]
        if ran and stage.type == "hook":
            memory = [f"{size / 1024:.1f} KiB" for size in (stage.lua_mem_bytes, stage.mem_delta_bytes)]
        took = f"{stage.duration_ms:.1f}" if ran else "-"
        rows.append([stage.name, stage.type, stage.status, took, *memory, stage.error])
    output.show_table(("stage", "type", "status", "ms", "memory", "change", "error"), rows, empty="")
    output.say("")
    if found.trouble:
        output.show_verdict("error", f"the page could not be fetched: {found.trouble}: {found.url}")
    elif not found.items and found.extracted is None:
        output.note("the cycle ended before anything was extracted")
    elif not found.items:
        output.note(f"no items are left of {found.extracted} that were extracted")
    if found.items:
        fields = list(dict.fromkeys(name for item in found.items for name in item.fields))
        items = [[*(each.fields.get(name, "") for name in fields), ", ".join(each.matches)] for each in found.items]
        output.show_table((*fields, "keywords"), items, empty="")
        output.note(f"{counted(len(items), 'item')} of {found.extracted} that were extracted")
    for file in found.files:
        output.note(f"saved {file}")


def show_plan(plan: DebugPlan) -> None:
    step_of = attrgetter("step")
    for workflow in plan.plan:
        if workflow.workflow:
            rules = [
                workflow.description,
                f"{workflow.max_parallel_tasks} at a time" if workflow.max_parallel_tasks > 1 else "",
                _timeout(workflow.timeout_ms),
                "goes on after a failure" if workflow.on_failure == "continue" else "",
            ]
            output.show_branch(0, "", f"{workflow.workflow}{_described(rules)}")
        planned = workflow.tasks if isinstance(workflow.tasks, list) else []
        for step, tasks in groupby(sorted(planned, key=step_of), key=step_of):
            label = f"{step}."
            for task in tasks:
                after = f"after {', '.join(task.depends_on)}" if task.depends_on else ""
                retries = counted(task.retries, "retry", "retries") if task.retries else ""
                facts = [after, *task.conditions, _timeout(task.timeout_ms), retries]
                output.show_branch(1, "", f"{label:<4}{task.task}{_described(facts)}")
                label = ""
        if workflow.more:
            output.show_branch(1, "", f"and {workflow.more} more")


def _timeout(ms: int) -> str:
    return f"at most {format_duration(ms)}" if ms else ""


def _described(facts: Sequence[str]) -> str:
    return f" ({'; '.join(filter(None, facts))})" if any(facts) else ""
