"""What a run's record says of the change that started it."""

from __future__ import annotations

import msgspec
import pytest

from spyweb.model import NULL, RunId, Trigger, Value
from spyweb.runs.state_trigger import event_to_lua, trigger_of
from tests.fakes.triggered import make_event, make_wanted, read_on

STATE = trigger_of(make_wanted(depth=2), read_on({"when": "f"}))
RETRY = Trigger(type="retry", of=RunId(1), depth=3, cause=STATE)


@pytest.mark.parametrize("trigger", [STATE, RETRY])
def test_a_retry_has_the_cause_of_what_it_retries(trigger: Trigger) -> None:
    assert trigger.change is not None
    assert (trigger.change_event, trigger.depth, trigger.change.when, trigger.change.by) == (9, 3, ["f"], 7)
    assert trigger.is_owed
    assert trigger.subject == ("orders", "42")


@pytest.mark.parametrize("type_", ["retry", "schedule", "", "state"])
def test_other_runs_have_none(type_: str) -> None:
    trigger = Trigger(type=type_)
    assert (trigger.change, trigger.change_event, trigger.is_owed) == (None, None, False)
    assert trigger.subject is None


def test_the_record_is_plain_json_for_any_key() -> None:
    trigger = trigger_of(make_wanted(b"\xff\0"), read_on({}))

    assert trigger.key == {"$base64": "/wA="}
    assert msgspec.json.decode(msgspec.json.encode(trigger), type=Trigger) == trigger
    assert b"when" not in msgspec.json.encode(trigger)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (None, b"v", {"new_value": b"v"}),
        (False, NULL, {"old_value": False}),
        ([], {1: True}, {"old_value": [], "new_value": {1: True}}),
    ],
)
def test_what_is_not_there_is_nil_to_the_script_and_so_is_null(old: Value, new: Value, told: dict[str, object]) -> None:
    event = msgspec.msgpack.decode(event_to_lua(make_event(b"\xff", old=old, new=new)), strict=False)

    what = {"type": "state", "event_type": "state:created", "scope": "orders", "key": b"\xff"}
    assert event == {**what, **told}
