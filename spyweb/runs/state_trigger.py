"""The change of state that started a run: in the run's record, and as its script is told.  Pure.

The record says what changed, not from what to what: the values stay in the change event, which the store keeps until
the run has ended.  So they are stored once, sealed where values are, and a history of large values stays small.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from spyweb.lua import wire
from spyweb.model import ChangeKind, On, Trigger, TriggerType
from spyweb.ops.rules.values import result_of
from spyweb.specs.watches import scope_of
from spyweb.store.interchange.value_json import to_plain
from spyweb.store.model.entries import ChangeEvent, WantedChange


def trigger_of(change: WantedChange, matched: Sequence[On]) -> Trigger:
    """Return what is recorded of a run that this change starts."""
    return Trigger(
        type=TriggerType.STATE,
        event_type=_event_type(change.kind),
        scope=scope_of(change.namespace),
        key=to_plain(change.key),
        event=change.event,
        by=change.origin.run,
        when=_conditions(matched),
        depth=change.origin.depth + 1,
    )


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
