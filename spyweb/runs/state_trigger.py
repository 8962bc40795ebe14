"""The change of state that started a run: in the run's record, and as its script is told.  Pure.

The record says what changed, not from what to what: the values stay in the change event, which the store keeps until
the run has ended.  So they are stored once, sealed where values are, and a history of large values stays small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from spyweb.lua import wire
from spyweb.model import ChangeKind, On, Run, RunId, TriggerType
from spyweb.ops.rules.values import result_of
from spyweb.specs.watches import scope_of
from spyweb.store.interchange.value_json import to_plain
from spyweb.store.values_protocol import ChangeEvent, WantedChange

Trigger = Mapping[str, object]
Subject = tuple[str, str]

_STATE, _RETRY = TriggerType.STATE.value, TriggerType.RETRY.value  # asked for several times at each run


def trigger_of(change: WantedChange, matched: Sequence[On]) -> Trigger:
    """Return what is recorded of a run that this change starts."""
    trigger: dict[str, object] = {
        "type": TriggerType.STATE.value,
        "event_type": _event_type(change.kind),
        "scope": scope_of(change.namespace),
        "key": to_plain(change.key),
        "event": change.event,
        "depth": change.origin.depth + 1,
    }
    if change.origin.run is not None:
        trigger["by"] = int(change.origin.run)
    conditions = _conditions(matched)
    return {**trigger, "when": conditions} if conditions else trigger


def _conditions(matched: Sequence[On]) -> list[str]:
    """Return the condition functions of which one must allow the run; none where it starts without one as well."""
    names = [on.when for on in matched if on.when is not None]
    return list(dict.fromkeys(names)) if len(names) == len(matched) else []


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


def cause_of(trigger: Trigger) -> Trigger | None:
    """Return the trigger of the change that started this run, or the run that this one retries."""
    kind = trigger.get("type")
    if kind == _RETRY:
        trigger = _mapping(trigger.get("cause"))
        kind = trigger.get("type")
    return trigger if kind == _STATE else None


def event_of(trigger: Trigger) -> int | None:
    """Return the id of the change event that started a run."""
    cause = cause_of(trigger)
    event = cause and cause.get("event")
    return event if isinstance(event, int) else None


def is_caused(run: Run) -> bool:
    return event_of(run.trigger) is not None


def subject_of(run: Run) -> Subject | None:
    """Return what changed: runs of one subject keep the order of its changes."""
    cause = cause_of(run.trigger)
    return (str(cause.get("scope")), str(cause.get("key"))) if cause else None


def conditions_of(trigger: Trigger) -> list[str]:
    when = (cause_of(trigger) or {}).get("when")
    return [str(name) for name in when] if isinstance(when, list) else []


def caused_by(trigger: Trigger) -> RunId | None:
    """Return the run that led to this one: by its change, or by its end."""
    run = (cause_of(trigger) or {}).get("by", trigger.get("run_id"))
    return RunId(run) if isinstance(run, int) else None


def depth_of(trigger: Trigger) -> int:
    """Count the chain of changes that led to this run."""
    depth = trigger.get("depth", 0)
    return depth if isinstance(depth, int) else 0


def _mapping(value: object) -> Trigger:
    return value if isinstance(value, Mapping) else {}
