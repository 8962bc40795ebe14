"""Convert runs to the rows that record them, and to the tables that their scripts receive.  Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from spyweb.lua import wire
from spyweb.lua.endings import failed, result_text
from spyweb.lua.recording import Recording
from spyweb.lua.session import Code, Procedure, Request
from spyweb.model import NULL, ChangeKind, Ending, JobSpec, On, Outcome, Run, RunId, RunState, Trigger, TriggerType
from spyweb.ops.rules.values import result_of
from spyweb.settings.script_values import from_text, merge
from spyweb.specs.watches import scope_of
from spyweb.store.interchange.value_json import to_plain
from spyweb.store.model.entries import ChangeEvent, WantedChange
from spyweb.store.model.messages import Channel, NewMessage, Target
from spyweb.store.model.runs import End, NewRun, SkippedRange


def trigger_of(change: WantedChange, matched: Sequence[On]) -> Trigger:
    """Return the trigger, as it is recorded, of a run that this change starts."""
    names = [on.when for on in matched if on.when is not None]
    return Trigger(
        type=TriggerType.STATE,
        event_type=_event_type(change.kind),
        scope=scope_of(change.namespace),
        key=to_plain(change.key),
        event=change.event,
        by=change.origin.run,
        when=list(dict.fromkeys(names)) if len(names) == len(matched) else [],  # none where one has no condition
        depth=change.origin.depth + 1,
    )


def event_to_lua(event: ChangeEvent) -> msgspec.Raw:
    """Pack a change event as the script sees it."""
    fields = {
        "type": TriggerType.STATE.value,
        "event_type": _event_type(event.kind),
        "scope": scope_of(event.namespace),
        "key": event.key,
        "old_value": result_of(event.old),
        "new_value": result_of(event.new),
    }
    return msgspec.Raw(wire.pack({name: value for name, value in fields.items() if value is not None}))


def _event_type(kind: ChangeKind) -> str:
    return f"{TriggerType.STATE.value}:{kind.value}"


DRY_RUN_NOTE = "dry run: nothing was changed"
NOT_AS_EXPECTED = "not as expected: "  # how the note of a monitor's run begins that found too little
NOTHING_YET = "nothing found yet"  # in a note: so far no incident
# Fields of a trigger that scripts do not see.
INTERNAL = frozenset(
    {"cause", "depth", "cut_short", "resumable", "resumes", "watched", "payload_stored", "traceparent"}
)


def shortfall_in(note: str) -> str:
    """Return the shortfall that the note of a run names; an empty text where it names none."""
    _, is_named, after = note.partition(NOT_AS_EXPECTED)
    return after.partition("; ")[0] if is_named else ""


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
    """Return the run under which the payload of this run is stored; None where the trigger holds the payload."""
    return first_of(run) if run.trigger.payload_stored else None


def values_of(run: Run, spec: JobSpec) -> Mapping[str, object]:
    """Return the `values` table of a run's script."""
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
    """Return the `ctx` table of scripts, without the fields that the VM adds; `event` is for a monitor's cycles."""
    started_ms, trigger = run.started_ms or 0, run.trigger
    given: object = event_to_lua(event) if event else {"type": TriggerType.STATE.value}
    if trigger.type != TriggerType.STATE:
        shown = {name: value for name, value in to_builtins(trigger).items() if name not in INTERNAL}
        if trigger.payload is not None:
            shown["payload"] = with_nulls(trigger.payload)
        given = {**shown, "event": given} if event else shown
    return {
        "job": str(run.job),
        "run_id": int(run.id),
        "attempt": run.attempt,
        "scheduled_at": (started_ms if run.due_ms is None else run.due_ms) / 1000,
        "started_at": started_ms / 1000,
        "trigger": given,
    }


def with_nulls(value: object) -> object:
    """Return JSON with null as scripts see it; a Lua table cannot hold nil."""
    match value:
        case None:
            return NULL
        case list():
            return [with_nulls(each) for each in value]
        case dict():
            return {name: with_nulls(each) for name, each in value.items()}
        case _:
            return value


def request_of(
    run: Run, spec: JobSpec, code: Code, event: ChangeEvent | None, *, may_retry: bool, recording: Recording | None
) -> Request:
    """Return the request by which a script job's run begins in its VM."""
    arguments: tuple[object, ...] = (ctx_of(run), may_retry)
    procedure = Procedure.RUN
    if run.trigger.incident:
        arguments = (*arguments, run.trigger.hook, run.trigger.incident)
        procedure = Procedure.ALERT
    elif event is not None:
        arguments = (*arguments, event_to_lua(event), (run.trigger.cause or run.trigger).when)
        procedure = Procedure.TRIGGER
    values = values_of(run, spec)
    return Request(
        run=run.id,
        code=code,
        timeout_ms=spec.timeout_ms,
        cpu_limit_ms=spec.cpu_limit_ms,
        procedure=procedure,
        arguments=(*arguments, values) if values else arguments,
        recording=recording,
    )


NO_MORE = "nothing differs any more"


def is_finding(run: Run) -> bool:
    """Return whether a run only reports a drift check."""
    return run.trigger.finding is not None


def is_drifting(run: Run | None) -> bool:
    """Return whether the latest run of a job is a drift check that found differences."""
    return run is not None and is_finding(run) and run.outcome is Outcome.FAILED


def ending_of(run: Run) -> Ending:
    """Return how a finding ends.  Its trigger holds the result, so the end is known even after a crash."""
    return failed(run.trigger.finding) if run.trigger.finding else Ending(outcome=Outcome.SUCCESS, note=NO_MORE)


START, SUCCESS, FAIL = "start", "success", "fail"
SAID = {Outcome.SUCCESS: SUCCESS, Outcome.FAILED: FAIL, Outcome.LOST: FAIL}  # other outcomes send no ping
KIND = "kind"  # a header of such a message: only the newest message of a kind waits

_RUNS = uuid.UUID("8f3f0d3a-5f0f-4d3b-9d6e-6a1f7b2d9c10")  # the namespace of rids


class PingFacts(Struct, frozen=True, kw_only=True):
    """The payload of a ping."""

    kind: str
    rid: str  # the same in all pings about a run and its retries
    run: RunId
    started_ms: int | None
    ended_ms: int | None = None
    reason: str = ""


decode_ping = msgspec.json.Decoder(PingFacts).decode


def ping_of(spec: JobSpec, run: Run, end: End | None = None) -> NewMessage | None:
    """Return the ping about the start or the final end of a run; None where its job has no address for it."""
    kind = SAID.get(end.outcome) if end else START if run.attempt == 1 else None
    if spec.ping is None or kind is None or run.trigger.is_aside or is_finding(run):
        return None
    if not (spec.ping.base or getattr(spec.ping, kind)):
        return None
    facts = PingFacts(
        kind=kind,
        rid=rid_of(run),
        run=run.id,
        started_ms=run.started_ms,
        ended_ms=end.ended_ms if end else None,
        reason=end.reason if end else "",
    )
    target = Target(Channel.PING, run.job)
    return NewMessage(job=run.job, target=target, payload=msgspec.json.encode(facts), headers=((KIND, kind),))


def rid_of(run: Run) -> str:
    return str(uuid.uuid5(_RUNS, f"{run.job}/{first_of(run)}"))
