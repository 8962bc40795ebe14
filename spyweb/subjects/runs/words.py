"""The page of one run in words: its timeline, its history and its facts.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from spyweb.model import JobSpec, Outcome, Run, RunMark, RunState, TaskStatus, TriggerType
from spyweb.subjects.runs.views import RunDetail
from spyweb.views.jobs import as_text
from spyweb.views.runs import (
    RunOps,
    call_text,
    check_result,
    describe_end,
    late_after,
    lateness_of,
    mark_of,
    moment_of,
    new_and_changed,
    took_of,
)
from spyweb.web.pages.charts import KINDS, WaterfallBar, span
from spyweb.web.pages.words import NBSP, show_duration, show_size
from spyweb.words import cut, first_line

_TASK_TONES = {TaskStatus.FAILED.value: "bad", TaskStatus.SKIPPED.value: "off", TaskStatus.UNCHANGED.value: "off"}


UNITS = {"latency": "ms", "size": "bytes", "ttl": "s", "newest": "s"}  # of what a check has measured
_OP_TONES = {"error": "bad", "unanswered": "off"}
MOST_BARS = 300  # of a timeline
LONGEST_VALUE = 120  # characters
LONGEST_MESSAGE = 200  # characters beside a bar, which the page has twice

OUTCOME_MARKS: Mapping[RunMark, str] = {
    RunMark.SUCCESS: "ok",
    RunMark.LATE: "warn",
    RunMark.FAILED: "bad",
    RunMark.LOST: "bad",
    RunMark.MISSED: "warn",
    RunMark.STOPPED: "off",
    RunMark.PAUSED: "off",
    RunMark.RUNNING: "run",
    RunMark.WAITING: "wait",
}


def drawn(mark: RunMark) -> str:
    """Return the name of the mark that stands for a run."""
    return OUTCOME_MARKS.get(mark, "none")


def tone_of(mark: RunMark) -> str:
    """Return the tone of the text about a run; none where its mark is enough."""
    return drawn(mark) if drawn(mark) in ("ok", "warn", "bad") else ""


def mark_of_outcome(outcome: Outcome | None) -> str:
    """Return the name of the mark that stands for an outcome."""
    return drawn(RunMark[outcome.name]) if outcome else "none"


class ShownRun(Struct, frozen=True, kw_only=True):
    """One run in a table."""

    run: Run
    mark: str
    word: str
    tone: str
    at_ms: int | None
    took_ms: int | None
    late_ms: int | None
    details: str


def show_run(run: Run, spec: JobSpec | None) -> ShownRun:
    mark = mark_of(run, late_after(spec))
    word = KINDS[mark][1] + (", debug" if run.trigger.debug else ", dry run" if run.trigger.dry_run else "")
    began = run.started_ms is not None and run.due_ms is not None and run.attempt == 1
    return ShownRun(
        run=run,
        mark=drawn(mark),
        word=f"{word} {run.count:,} times" if run.count > 1 else word,
        tone=tone_of(mark),
        at_ms=moment_of(run),
        took_ms=took_of(run),
        late_ms=lateness_of(run) if began and run.outcome is not Outcome.SKIPPED else None,
        details=first_line(describe_end(run, is_check=bool(spec and spec.check))),
    )


class TaskBar(Struct, frozen=True, kw_only=True):
    """A task, or an op, as a bar of the waterfall."""

    name: str
    words: str
    tone: str
    took_ms: int | None
    span: WaterfallBar | None  # none where this run did not perform it


class ShownCause(Struct, frozen=True, kw_only=True):
    """A step in the history of a run: a cause, an attempt, or a run that followed."""

    words: str
    mark: str
    at_ms: int | None = None
    run: int | None = None


class Fact(Struct, frozen=True, kw_only=True):
    """A fact of a run: a moment, words, or both."""

    name: str
    words: str = ""
    at_ms: int | None = None
    tone: str = ""


def is_open(detail: RunDetail) -> bool:
    return detail.run.state is not RunState.ENDED


def task_bars(detail: RunDetail) -> list[TaskBar]:
    """Return a bar for each task, MOST_BARS at most; one that the run did not perform has words instead."""
    began_ms = detail.run.started_ms
    if began_ms is None:
        return []
    whole_ms = whole_of(detail)
    bars = []
    for task in detail.tasks[:MOST_BARS]:
        is_performed = task.started_at is not None and task.taken_from is None
        words = f"{task.status}{', taken over from run ' + str(task.taken_from) if task.taken_from else ''}"
        bar = span((task.started_at or 0) * 1000 - began_ms, task.took_ms or 0, whole_ms)
        bars.append(
            TaskBar(
                name=task.task,
                words=words + (f": {cut(task.message, LONGEST_MESSAGE)}" if task.message else ""),
                tone=_TASK_TONES.get(task.status, "ok"),
                took_ms=task.took_ms if is_performed else None,
                span=bar if is_performed else None,
            )
        )
    return bars


def op_bars(found: RunOps, whole_ms: int) -> list[TaskBar]:
    """Return a bar for each recorded op, in the order in which the run asked, MOST_BARS at most."""
    bars = []
    for op in sorted(found.ops, key=lambda op: op.number)[:MOST_BARS]:
        error = as_text(op.answer[0]) if op.status == "error" and op.answer else ""
        bars.append(
            TaskBar(
                name=call_text(op.name, op.given),
                words=op.status + (f": {cut(error, LONGEST_MESSAGE)}" if error else ""),
                tone=_OP_TONES.get(op.status, "ok"),
                took_ms=round(op.took_s * 1000),
                span=span(op.asked_s * 1000, op.took_s * 1000, whole_ms),
            )
        )
    return bars


def whole_of(detail: RunDetail) -> int:
    """Return how long the run took: at least until the end of its last task."""
    began_ms = detail.run.started_ms or 0
    ends = [round(task.started_at * 1000) - began_ms + (task.took_ms or 0) for task in detail.tasks if task.started_at]
    return max([detail.took_ms or 0, *ends, 1])


def causes_of(detail: RunDetail) -> list[ShownCause]:
    """Return the causes of a run, its attempts, and the runs that followed, in this order."""
    causes = [
        ShownCause(
            words=cause.words,
            mark=drawn(cause.run.mark) if cause.run else "ok",
            at_ms=cause.at_ms,
            run=cause.run.run if cause.run else None,
        )
        for cause in detail.causes
        if cause.kind != TriggerType.RETRY or not detail.attempts  # which have a line each
    ]
    others = [(f"attempt {each.attempt}", each) for each in detail.attempts]
    for what, each in (*others, *((f"then {each.job}", each) for each in detail.followers)):
        said = "this one" if each.run == detail.run.id else each.words[:1].lower() + each.words[1:]
        causes.append(ShownCause(words=f"{what}: {said}", mark=drawn(each.mark), at_ms=each.at_ms, run=each.run))
    return causes


def facts_of(detail: RunDetail) -> list[Fact]:
    """Return the moments of a run, its use of each limit, and its other facts."""
    run = detail.run
    moments = {"due": run.due_ms, "until": run.last_due_ms, "began": run.started_ms, "ended": run.ended_ms}
    if is_open(detail):
        moments["not before"] = run.start_after_ms
    facts = [Fact(name=name, at_ms=at_ms) for name, at_ms in moments.items() if at_ms is not None]
    if run.started_ms is not None and run.due_ms is not None and run.attempt == 1:
        tone = "warn" if detail.mark is RunMark.LATE else ""
        facts.append(Fact(name="late", words=show_duration(detail.late_ms), tone=tone))
    for limit in detail.limits:
        show: Callable[[int], str] = show_size if limit.unit == "bytes" else show_duration
        most = show(limit.limit)
        words = f"at most {most}" if limit.used is None else f"{show(limit.used)} of {most}"
        facts.append(Fact(name=limit.name, words=words, tone="bad" if limit.is_over else ""))
    errors = f"{run.storage_errors:,}" if run.storage_errors else "none"
    facts.append(Fact(name="storage errors", words=errors, tone="warn" if run.storage_errors else ""))
    stored = new_and_changed(run.items_new, run.items_changed)
    known = {
        "attempt": f"{run.attempt:,}" if run.attempt > 1 else "",
        "page": f"status {run.http_status}" if run.http_status is not None else "",
        "items": "" if run.items_found is None else f"{run.items_found:,}, of them {' and '.join(stored) or '0 new'}",
        "note": run.note,
        "version": f"{run.generation:,} since the daemon's start" if run.generation else "",
    }
    return facts + [Fact(name=name, words=words) for name, words in known.items() if words]


def measured(run: Run) -> list[Fact]:
    """Return what a check has measured, by the names that its conditions use."""
    found = check_result(run)
    figures = msgspec.json.decode(run.result) if found else {}
    tones = dict.fromkeys(("cert_days", "days"), found.tone if found else "")
    return [
        Fact(
            name=name,
            words=f"{cut(as_text(value), LONGEST_VALUE)}{NBSP}{UNITS.get(name, '')}",
            tone=tones.get(name, ""),
        )
        for name, value in figures.items()
    ]


def said_of(detail: RunDetail) -> str:
    """Return the text after the reason in the heading."""
    attempts = len(detail.attempts)
    if attempts > 1:
        return f"Attempt {detail.run.attempt:,} of {attempts:,}."
    return "" if detail.is_there else "The job was removed."
