"""What a run's record says of the change that started it."""

from __future__ import annotations

import msgspec
import pytest

from spyweb.model import NULL, JobId, Run, RunId, RunState, Value
from spyweb.runs.state_trigger import (
    caused_by,
    conditions_of,
    depth_of,
    event_of,
    event_to_lua,
    is_caused,
    subject_of,
    trigger_of,
)
from spyweb.specs.watches import read_on
from tests.fakes.triggered import make_event, make_wanted


def make_run(trigger: dict[str, object]) -> Run:
    return Run(id=RunId(1), job=JobId("orders"), state=RunState.RUNNING, trigger=trigger)


STATE = trigger_of(make_wanted(depth=2), read_on({"when": "f"}))
RETRY: dict[str, object] = {"type": "retry", "of": 1, "depth": 3, "cause": STATE}
OTHER: dict[str, object] = {"type": "retry", "of": 1}


@pytest.mark.parametrize("trigger", [dict(STATE), RETRY])
def test_a_retry_has_the_cause_of_what_it_retries(trigger: dict[str, object]) -> None:
    run = make_run(trigger)

    assert is_caused(run)
    assert (event_of(trigger), depth_of(trigger), conditions_of(trigger), caused_by(trigger)) == (9, 3, ["f"], 7)
    assert subject_of(run) == ("orders", "42")


@pytest.mark.parametrize(
    "trigger", [OTHER, {"type": "schedule"}, {}, {"type": "state"}, {"type": "state", "event": "x"}]
)
def test_other_runs_have_none(trigger: dict[str, object]) -> None:
    assert not is_caused(make_run(trigger))
    assert (event_of(trigger), depth_of(trigger), conditions_of(trigger)) == (None, 0, [])


def test_the_record_is_plain_json_for_any_key() -> None:
    trigger = trigger_of(make_wanted(b"\xff\0"), read_on({}))

    assert trigger["key"] == {"$base64": "/wA="}
    assert msgspec.json.decode(msgspec.json.encode(trigger)) == trigger
    assert "when" not in trigger


def test_a_run_that_follows_another_was_led_to_by_it() -> None:
    assert caused_by({"type": "after", "job": "a", "run_id": 4}) == 4
    assert caused_by({"type": "schedule"}) is None


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
