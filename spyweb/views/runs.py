"""Runs as people and programs see them: ended ones, one that is watched, and each as a mark of one letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spyweb.lua.endings import first_value, show_value
from spyweb.lua.recording import RecordedOp, decode_record
from spyweb.model import Ending, Failure, JobId, JobSpec, Outcome, Run, RunId, RunMark, RunState, TaskBegun, TaskRow
from spyweb.permissions.policy import Audit
from spyweb.store.model.runs import CheckResult, check_result_in
from spyweb.words import counted, cut

LONGEST_CALL = 200  # characters of an op, as it is shown


class LastRun(Struct, frozen=True, kw_only=True, gc=False):  # as JobView
    run: RunId
    outcome: Outcome
    failure: Failure | None
    started_ms: int | None
    ended_ms: int | None
    duration_ms: int | None
    reason: str
    storage_errors: int = 0
    result: str = ""
    http_status: int | None = None
    items_found: int | None = None
    items_new: int | None = None
    items_changed: int | None = None
    note: str = ""


class LogLine(Struct, frozen=True, kw_only=True):
    """A line that a watched run logged or printed."""

    level: str
    text: str
    at_ms: int


class RunEnded(Struct, frozen=True, kw_only=True):
    """The end of a watched run."""

    job: JobId
    run: RunId | None
    outcome: Outcome
    failure: Failure | None = None
    reason: str = ""
    traceback: str = ""
    duration_ms: int = 0
    cpu_ms: int = 0
    generation: int = 0
    globals_reset: bool = False
    result: object = None
    storage_errors: int = 0
    http_status: int | None = None
    items_found: int | None = None
    items_new: int | None = None
    items_changed: int | None = None
    note: str = ""
    permissions: str = ""  # the permissions that it has used, as TOML, where they were recorded


class TaskView(Struct, frozen=True, kw_only=True):
    """One task of a run: its end, or its start in a run that is watched."""

    task: str
    workflow: str
    status: str  # "running", or how it ended
    attempts: int = 0
    started_at: float | None = None  # epoch seconds
    took_ms: int | None = None
    message: str = ""
    output: object = None
    taken_from: RunId | None = None  # the run that performed it, where this one has taken over the result


class RunCancelled(Struct, frozen=True, kw_only=True):
    """A run that was cancelled."""

    run: RunId
    job: JobId


class RunRetried(Struct, frozen=True, kw_only=True):
    """A run that retries another."""

    run: RunId | None
    job: JobId
    retry_of: RunId
    taken_over: int = 0  # finished tasks of that run, which are not performed again
    first_task: str = ""  # the first task that runs; empty where the job starts from the beginning


RunEvent = LogLine | TaskView | RunEnded
S = TypeVar("S", bound=Struct)


def copied(kind: type[S], source: object, /, **others: object) -> S:
    """Make a Struct of what another object has under the same names, and of these other fields."""
    same = {name: getattr(source, name) for name in kind.__struct_fields__ if hasattr(source, name)}
    return cast(Any, kind)(**same | others)  # type: ignore[no-any-return]


def last_run(run: Run) -> LastRun | None:
    return copied(LastRun, run, run=run.id, duration_ms=duration_ms(run)) if run.outcome else None


def duration_ms(run: Run) -> int | None:
    if run.started_ms is None or run.ended_ms is None:
        return None
    return max(0, run.ended_ms - run.started_ms)


def log_line(level: str, text: bytes, at_ms: int) -> LogLine:
    return LogLine(level=level, text=text.decode("utf-8", "replace"), at_ms=at_ms)


def view_task(event: TaskBegun | TaskRow) -> TaskView:
    if isinstance(event, TaskBegun):
        return TaskView(task=event.name, workflow=event.workflow, status="running")
    return copied(
        TaskView,
        event,
        task=event.name,
        status=event.status.value,
        started_at=None if event.started_ms is None else event.started_ms / 1000,
        took_ms=None if event.started_ms is None else max(0, event.ended_ms - event.started_ms),
        output=show_output(event.output),
    )


def run_with_tasks(run: Run, tasks: Sequence[TaskView]) -> dict[str, object]:
    """Return a run with its tasks, for JSON."""
    shown: dict[str, object] = msgspec.to_builtins(run)
    return {**shown, "tasks": [without_blanks(msgspec.to_builtins(task)) for task in tasks]}


def show_output(packed: bytes | None) -> object:
    """Return the output of a task as JSON can hold it; None where it can't be read."""
    return show_value(first_value(packed))


def run_ended(run: Run, ending: Ending, ended_ms: int, audit: Audit | None = None) -> RunEnded:
    return copied(
        RunEnded,
        ending,
        job=run.job,
        run=run.id,
        duration_ms=max(0, ended_ms - run.started_ms) if run.started_ms is not None else 0,
        generation=run.generation,
        result=show_value(ending.result if ending.preview is None else ending.preview),
        permissions=audit.block(run.job) if audit else "",
    )


def describe_details(run: Run | LastRun) -> str:
    """Describe a run beside its outcome: `404, 0 items`, its error, its result."""
    cause = run.failure if run.failure not in (None, Failure.ERROR) else ""
    reason = run.reason if not cause or run.reason.startswith(cause) else f"{cause}: {run.reason}"
    is_plan = isinstance(run, Run) and run.trigger.is_aside and run.result.startswith('{"plan":')
    return "; ".join(filter(None, (reason, describe_page(run), "only planned" if is_plan else run.result, run.note)))


def check_result(last: Run | LastRun | None) -> CheckResult | None:
    """Return the result of a check's run; None where it did not succeed, or has returned none of a check."""
    return check_result_in(last.result) if last is not None and last.outcome is Outcome.SUCCESS else None


def describe_end(run: Run | LastRun, *, is_check: bool) -> str:
    """Describe a run beside its outcome; of a check, what it has measured."""
    result = check_result(run) if is_check else None
    return (result and result.words) or describe_details(run)


def describe_page(run: Run | LastRun | RunEnded) -> str:
    """Describe the HTTP status of a monitor's run, unless it is 2xx, and the number of items."""
    status, found = run.http_status, run.items_found
    shown = [] if status is None or 200 <= status < 300 else [str(status)]
    if found is not None:
        shown += [counted(found, "item"), *new_and_changed(run.items_new, run.items_changed)]
    return ", ".join(shown)


def new_and_changed(stored: int | None, changed: int | None) -> list[str]:
    """Return `2 new` and `1 changed` of the records that a monitor's run has stored, without zeros."""
    counts = (((stored or 0) - (changed or 0), "new"), (changed or 0, "changed"))
    return [f"{number:,} {word}" for number, word in counts if number]


def describe_storage_errors(count: int) -> str:
    return counted(count, "storage error") if count else ""


def describe_failure(reason: str, traceback: str) -> str:
    """Return reason and traceback of a failure, without the reason twice: a traceback may begin with it."""
    if not traceback or traceback.startswith(reason):
        return traceback or reason
    return f"{reason}\n{traceback}"


EVENTS: Mapping[str, type[RunEvent]] = {"log": LogLine, "task": TaskView, "ended": RunEnded}


def without_blanks(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a task without empty ones."""
    optional = ("message", "output", "taken_from")
    return {name: value for name, value in fields.items() if name not in optional or value not in (None, "")}


def event_to_json(event: RunEvent) -> bytes:
    """Return one line of a watched run: the event's fields, and its kind."""
    kind = next(kind for kind, of_kind in EVENTS.items() if isinstance(event, of_kind))
    fields: dict[str, object] = msgspec.to_builtins(event)
    if isinstance(event, TaskView):
        fields = without_blanks(fields)
    if not fields.get("permissions"):
        fields.pop("permissions", None)
    return msgspec.json.encode({"event": kind, **fields})


def event_from_json(line: bytes) -> RunEvent:
    fields = msgspec.json.decode(line, type=dict[str, object])
    kind = fields.pop("event", None)
    event: RunEvent = msgspec.convert(fields, EVENTS.get(str(kind), RunEnded))
    return event


LATE_MS = 1_000  # after the due time and the most that jitter adds: from there on a start is late
SUCCEEDED: Final = frozenset({RunMark.SUCCESS, RunMark.LATE})
FAILING: Final = frozenset({RunMark.FAILED, RunMark.LOST})
DECISIVE: Final = SUCCEEDED | FAILING  # the marks that decide whether a job is failing


def mark_of(run: Run, late_ms: int = LATE_MS) -> RunMark:
    if run.outcome is None:
        return RunMark.WAITING if run.state is RunState.WAITING else RunMark.RUNNING
    if run.outcome is Outcome.SUCCESS and lateness_of(run) > late_ms:
        return RunMark.LATE
    if run.failure is Failure.CANCELLED:
        return RunMark.CANCELLED
    return RunMark[run.outcome.name]


def late_after(spec: JobSpec | None) -> int:
    """Return after how many milliseconds a start of this job is late: its jitter is no lateness."""
    return LATE_MS + (spec.jitter_ms if spec else 0)


def lateness_of(run: Run) -> int:
    """Return how long after its due time a run began; a retry is never late."""
    if run.started_ms is None or run.due_ms is None or run.attempt > 1:
        return 0
    return max(0, run.started_ms - run.due_ms)


def took_of(run: Run) -> int | None:
    """Return how long a run took; None where it has not ended or never began."""
    return None if run.outcome is Outcome.SKIPPED else duration_ms(run)


def moment_of(run: Run) -> int | None:
    """Return the moment under which a run is shown: its start, else when it was due last, else its end.

    A waiting run without a due time has none.
    """
    moments = (run.started_ms, run.last_due_ms, run.due_ms, run.ended_ms)
    return next((moment for moment in moments if moment is not None), None)


def success_rate(marks: str) -> float | None:
    """Return the share of successes among successes and failures; None where there is neither."""
    good, bad = sum(marks.count(mark) for mark in SUCCEEDED), sum(marks.count(mark) for mark in FAILING)
    return good / (good + bad) if good + bad else None


def median_ms(took_ms: Sequence[int]) -> int | None:
    known = sorted(ms for ms in took_ms if ms >= 0)
    return known[(len(known) - 1) // 2] if known else None


class RunOps(Struct, frozen=True, kw_only=True):
    run: Run
    ops: Sequence[RecordedOp]  # in the order of their answers
    left_out: int  # ops after these
    record: bytes | None = None  # by which the run can be replayed


def view_ops(run: Run, data: bytes) -> RunOps:
    record = decode_record(data)
    ops = [replace(op, given=show_value(op.given), answer=show_value(op.answer)) for op in record.ops]
    return RunOps(run=run, ops=ops, left_out=record.left_out, record=data)


def call_text(name: str, given: Any) -> str:
    """Return an op as its call: `http_get("https://…")`."""
    if given is None:
        return f"{name}(…)"
    values = [msgspec.json.encode(show_value(value), order="sorted").decode() for value in given]
    return cut(f"{name}({', '.join(values)})", LONGEST_CALL)
