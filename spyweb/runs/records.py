"""What is written down about a run, and what its script is told about it.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.lua.result import result_text
from spyweb.model import Ending, Outcome, Run, RunId, TriggerType
from spyweb.runs.state_trigger import event_of
from spyweb.store.protocol import End, NewRun, SkippedRange


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
    )


def unbegun(reason: str) -> Ending:
    """Of a run that has waited in vain."""
    return Ending(outcome=Outcome.SKIPPED, reason=reason)


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


def _seconds(moment_ms: int | None) -> float | None:
    return None if moment_ms is None else moment_ms / 1000


def ctx_of(run: Run) -> Mapping[str, object]:
    """The `ctx` table of lua-api.md section 1, less what the VM adds itself."""
    started_ms = run.started_ms or 0
    return {
        "job": str(run.job),
        "run_id": int(run.id),
        "attempt": run.attempt,
        "scheduled_at": _seconds(started_ms if run.due_ms is None else run.due_ms),
        "started_at": _seconds(started_ms),
        "trigger": _told(run.trigger),
    }


FOR_US = frozenset({"cause", "depth", "cut_short"})  # in a trigger


def _told(trigger: Mapping[str, object]) -> dict[str, object]:
    """Less what is only for us; where a change of state was the cause, the VM adds the event."""
    if trigger.get("type") == TriggerType.STATE:
        return {"type": TriggerType.STATE.value}
    return {name: value for name, value in trigger.items() if name not in FOR_US}
