"""Convert runs: to the rows that record them, and to what their scripts are told.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict, replace

from spyweb.lua.endings import result_text
from spyweb.model import NULL, Ending, JobSpec, Outcome, Run, RunId, RunState, TriggerType
from spyweb.runs.state_trigger import event_of, event_to_lua, is_caused
from spyweb.settings.script_values import from_text, merge
from spyweb.store.protocol import End, NewRun, SkippedRange
from spyweb.store.tasks_protocol import RESUMES
from spyweb.store.values_protocol import ChangeEvent
from spyweb.tracing.span import TRACEPARENT

VALUES = "values"  # in a trigger: what a person lays over the values of the job
PAYLOAD = "payload"  # in a trigger: what was sent along, any JSON; its retries have it too
PING = "ping"  # in a trigger: what the ping said that a run has come from, `start` or how it ended
RID = "rid"  # in a trigger: by which the sender of a ping knows the run
DEBUG = "debug"  # in a trigger: of a monitor job's run, show what it finds and keep nothing of it
DRY_RUN = "dry_run"  # in a trigger: nothing is changed
DRY_RUN_NOTE = "dry run: nothing was changed"
NOT_AS_EXPECTED = "not as expected: "  # how the note of a monitor's run begins that found too little
WATCHED = "watched"  # in a trigger: a person waits for the end of the run (`spyweb run`)
HOOK, INCIDENT = "hook", "incident"  # in a trigger: the function of the job's file that is told, and of what
STORED = "payload_stored"  # in a trigger: the payload is kept apart, since it is large
SENT = (
    HOOK,
    INCIDENT,
    PAYLOAD,
    STORED,
    "headers",
    "query",
    TRACEPARENT,
)  # in a trigger: what came with it, for all attempts
# In a trigger; scripts are not told.
INTERNAL = frozenset({"cause", "depth", "cut_short", "resumable", WATCHED, STORED, TRACEPARENT, RESUMES})


def is_ping(trigger: Mapping[str, object]) -> bool:
    """Return whether a run is carried out elsewhere: a ping has told of it."""
    return PING in trigger


def is_dry(run: Run) -> bool:
    """Return whether a run changes nothing, and says what it would."""
    return run.trigger.get(DRY_RUN) is True


def is_trial(trigger: Mapping[str, object]) -> bool:
    """Return whether a run only shows what it finds or would do: it replaces no other, and nothing follows it."""
    return trigger.get(DRY_RUN) is True or bool(trigger.get(DEBUG))


def tells_of_incident(trigger: Mapping[str, object]) -> bool:
    """Return whether a run only tells the job's file of an incident."""
    return INCIDENT in trigger


def is_aside(trigger: Mapping[str, object]) -> bool:
    """Return whether a run is not the job's own work, so that its end says nothing about the job."""
    return tells_of_incident(trigger) or is_trial(trigger)


def is_owed(run: Run) -> bool:
    """Return whether what has started a run starts no other, so that it must not be given up."""
    return is_caused(run) or tells_of_incident(run.trigger)


def stands_alone(trigger: Mapping[str, object]) -> bool:
    """Return whether nothing follows a run, however it ends: neither a retry nor another job."""
    return is_trial(trigger) or trigger.get(WATCHED) is True


def shortfall_in(note: str) -> str:
    """Return what a run found too little of, as its note says; an empty text where it does not."""
    _, is_told, after = note.partition(NOT_AS_EXPECTED)
    return after.partition("; ")[0] if is_told else ""


def run_of(run_id: RunId, new: NewRun) -> Run:
    return Run(
        id=run_id,
        job=new.job,
        state=new.state,
        attempt=new.attempt,
        due_ms=new.due_ms,
        trigger=new.trigger,
        start_after_ms=new.start_after_ms,
        started_ms=new.started_ms,
        generation=new.generation,
    )


def end_of(run: Run, ending: Ending, now_ms: int) -> End:
    return End(
        run=run.id,
        ended_ms=now_ms,
        outcome=ending.outcome,
        failure=ending.failure,
        reason=ending.reason,
        traceback=ending.traceback,
        cpu_ms=ending.cpu_ms,
        storage_errors=ending.storage_errors,
        result=result_text(ending.result),
        http_status=ending.http_status,
        items_found=ending.items_found,
        items_new=ending.items_new,
        note=ending.note,
        event=event_of(run.trigger),
        of_payload=payload_of(run),
    )


def ended_run(run: Run, end: End) -> Run:
    """Return the run as it is on record once its end is committed."""
    values = asdict(end)
    del values["run"], values["event"], values["alert"], values["ping"], values["of_payload"]
    return replace(run, state=RunState.ENDED, **values)


def first_of(run: Run) -> RunId:
    """Return the first attempt of a run."""
    first = run.trigger.get("of", run.id) if run.trigger.get("type") == TriggerType.RETRY else run.id
    return RunId(first) if isinstance(first, int) else run.id


def payload_of(run: Run) -> RunId | None:
    """Return the run with which the payload is kept that this one needs, if that is kept apart."""
    return first_of(run) if run.trigger.get(STORED) is True else None


def values_of(run: Run, spec: JobSpec) -> Mapping[str, object]:
    """Return what the script of a run sees in `values`."""
    over = run.trigger.get(VALUES)
    if not isinstance(over, Mapping):
        return from_text(spec.values) if spec.values else {}
    return merge([over, from_text(spec.values)])


def unbegun(reason: str) -> Ending:
    """Return the ending of a run that waited and never started."""
    return Ending(outcome=Outcome.SKIPPED, reason=reason, declined=True)


def skip_of(new: NewRun, now_ms: int, reason: str) -> SkippedRange:
    due_ms = now_ms if new.due_ms is None else new.due_ms
    return SkippedRange(
        job=new.job,
        outcome=Outcome.SKIPPED,
        first_due_ms=due_ms,
        last_due_ms=due_ms,
        count=1,
        reason=reason,
        at_ms=now_ms,
        trigger=TriggerType(str(new.trigger.get("type", TriggerType.SCHEDULE))),
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


def _trigger_to_lua(trigger: Mapping[str, object], event: ChangeEvent | None) -> object:
    """Return what a script is told of its trigger: all but what only spyweb needs."""
    if trigger.get("type") == TriggerType.STATE:
        return event_to_lua(event) if event else {"type": TriggerType.STATE.value}
    shown = {name: value for name, value in trigger.items() if name not in INTERNAL}
    if PAYLOAD in shown:
        shown[PAYLOAD] = with_nulls(shown[PAYLOAD])
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
