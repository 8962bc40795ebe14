"""Convert runs: to the rows that record them, and to what their scripts are told.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from spyweb.lua.endings import result_text
from spyweb.model import NULL, Ending, JobSpec, Outcome, Run, RunId, RunState, Trigger, TriggerType
from spyweb.runs.state_trigger import event_to_lua
from spyweb.settings.script_values import from_text, merge
from spyweb.store.model.entries import ChangeEvent
from spyweb.store.model.runs import End, NewRun, SkippedRange

DRY_RUN_NOTE = "dry run: nothing was changed"
NOT_AS_EXPECTED = "not as expected: "  # how the note of a monitor's run begins that found too little
# In a trigger; scripts are not told.
INTERNAL = frozenset(
    {"cause", "depth", "cut_short", "resumable", "resumes", "watched", "payload_stored", "traceparent"}
)


def shortfall_in(note: str) -> str:
    """Return what a run found too little of, as its note says; an empty text where it does not."""
    _, is_told, after = note.partition(NOT_AS_EXPECTED)
    return after.partition("; ")[0] if is_told else ""


def run_of(run_id: RunId, new: NewRun) -> Run:
    return Run(id=run_id, **_of_run(new))


def end_of(run: Run, ending: Ending, now_ms: int) -> End:
    said = {**asdict(ending), "result": result_text(ending.result)}
    return End(run=run.id, ended_ms=now_ms, event=run.trigger.change_event, of_payload=payload_of(run), **said)


def ended_run(run: Run, end: End) -> Run:
    """Return the run as it is on record once its end is committed."""
    return replace(run, state=RunState.ENDED, **_of_run(end))


def _of_run(record: NewRun | End) -> dict[str, Any]:
    """Return the fields of a run that its record has."""
    return {name: value for name, value in asdict(record).items() if name in Run.__struct_fields__}


def first_of(run: Run) -> RunId:
    """Return the first attempt of a run."""
    return run.trigger.of or run.id


def payload_of(run: Run) -> RunId | None:
    """Return the run with which the payload is kept that this one needs, if that is kept apart."""
    return first_of(run) if run.trigger.payload_stored else None


def values_of(run: Run, spec: JobSpec) -> Mapping[str, object]:
    """Return what the script of a run sees in `values`."""
    of_job = from_text(spec.values) if spec.values else {}
    return merge([run.trigger.values, of_job]) if run.trigger.values else of_job


def unbegun(reason: str) -> Ending:
    """Return the ending of a run that waited and never started."""
    return Ending(outcome=Outcome.SKIPPED, reason=reason, declined=True)


def skip_of(new: NewRun, now_ms: int, reason: str, outcome: Outcome = Outcome.SKIPPED) -> SkippedRange:
    due_ms = now_ms if new.due_ms is None else new.due_ms
    return SkippedRange(
        job=new.job,
        outcome=outcome,
        first_due_ms=due_ms,
        last_due_ms=due_ms,
        count=1,
        reason=reason,
        at_ms=now_ms,
        trigger=TriggerType(new.trigger.type),
        follows=new.follows,
    )


def ctx_of(run: Run, event: ChangeEvent | None = None) -> Mapping[str, object]:
    """Return the `ctx` table that scripts see, less what the VM adds itself.

    With the event of the change that started the run where it is for a monitor's cycles; a script's VM puts that in
    (trigger.lua).
    """
    started_ms = run.started_ms or 0
    return {
        "job": str(run.job),
        "run_id": int(run.id),
        "attempt": run.attempt,
        "scheduled_at": (started_ms if run.due_ms is None else run.due_ms) / 1000,
        "started_at": started_ms / 1000,
        "trigger": _trigger_to_lua(run.trigger, event),
    }


def _trigger_to_lua(trigger: Trigger, event: ChangeEvent | None) -> object:
    """Return what a script is told of its trigger: all but what only spyweb needs."""
    if trigger.type == TriggerType.STATE:
        return event_to_lua(event) if event else {"type": TriggerType.STATE.value}
    shown = {name: value for name, value in to_builtins(trigger).items() if name not in INTERNAL}
    if trigger.payload is not None:
        shown["payload"] = with_nulls(trigger.payload)
    return {**shown, "event": event_to_lua(event)} if event else shown


def with_nulls(value: object) -> object:
    """Return JSON with null as scripts see it; nil could not be in a table."""
    match value:
        case None:
            return NULL
        case list():
            return [with_nulls(each) for each in value]
        case dict():
            return {name: with_nulls(each) for name, each in value.items()}
        case _:
            return value
