from __future__ import annotations

import math

import msgspec
import pytest

from spyweb.lua import endings, wire
from spyweb.lua.endings import result_text, show_value
from spyweb.lua.wire import Ended, Ext, Foreign, RunEnd, Why
from spyweb.model import NULL, Ending, Failure, Outcome


def told(ended: Ended, *, result: bytes | None = None, discarded: bool = False) -> Ending:
    return endings.from_end(RunEnd(1, ended, b"jobs/a.lua:3: b\xffad", b"stack", 12, result, discarded))


@pytest.mark.parametrize(
    ("ended", "outcome", "failure"),
    [
        (Ended.SUCCESS, Outcome.SUCCESS, None),
        (Ended.ERROR, Outcome.FAILED, Failure.ERROR),
        (Ended.CPU, Outcome.FAILED, Failure.CPU),
        (Ended.TIMEOUT, Outcome.FAILED, Failure.TIMEOUT),
        (Ended.CANCELLED, Outcome.FAILED, Failure.CANCELLED),
        (Ended.STOPPED, Outcome.STOPPED, None),
        (Ended.MEMORY, Outcome.FAILED, Failure.MEMORY),
    ],
)
def test_what_a_worker_tells_has_its_outcome(ended: Ended, outcome: Outcome, failure: Failure | None) -> None:
    ending = told(ended)

    assert (ending.outcome, ending.failure, ending.cpu_ms, ending.traceback) == (outcome, failure, 12, "stack")
    assert ending.reason == "jobs/a.lua:3: b\ufffdad"


def test_the_first_returned_value_is_the_result() -> None:
    assert told(Ended.SUCCESS, result=wire.pack([{"a": 1}, 2])).result == {"a": 1}
    assert told(Ended.SUCCESS, result=wire.pack([])).result is None
    assert told(Ended.SUCCESS).result is None


def test_what_can_not_be_shown_is_no_result() -> None:
    table_as_key = b"\x91\x81\x81\x01\x02\x03"
    for packed in (b"", b"\xc1", b"\x05", b"\x91\xc7\x01\x63x", b"\x91" * 5000, b"\x91\xd9\x02\xff\xff", table_as_key):
        assert told(Ended.SUCCESS, result=packed).result is None


def test_a_run_that_cost_its_vm_or_its_worker_shows_its_cpu_and_that_globals_were_reset() -> None:
    assert endings.unstoppable(Why.CPU, 1500).cpu_ms == 1500
    assert endings.lost("its worker died", guilty=True, cpu_ms=1500).cpu_ms == 1500
    assert told(Ended.CPU, discarded=True).globals_reset
    assert not told(Ended.SUCCESS).globals_reset


@pytest.mark.parametrize(
    ("why", "failure"), [(Why.CPU, Failure.CPU), (Why.TIMEOUT, Failure.TIMEOUT), (Why.CANCELLED, Failure.CANCELLED)]
)
def test_what_cannot_be_stopped_failed_for_the_reason_it_was_to_stop(why: Why, failure: Failure) -> None:
    ending = endings.unstoppable(why)

    assert (ending.outcome, ending.failure, ending.globals_reset) == (Outcome.FAILED, failure, True)
    assert "could not be stopped" in ending.reason


def test_what_is_stopped_before_it_began_is_stopped() -> None:
    assert endings.never_begun(Why.STOPPED).outcome is Outcome.STOPPED
    assert endings.never_begun(Why.CANCELLED).failure is Failure.CANCELLED


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"gr\xc3\xbcn", "grün"),
        (b"\xff", "\ufffd"),
        ({b"a": [1, True, None]}, {"a": [1, True, None]}),
        ({1: b"x", 2.5: b"y"}, {"1": "x", "2.5": "y"}),
        (Foreign(Ext.FOREIGN, "function"), "<function>"),
        ({b"a": [NULL]}, {"a": [None]}),
        (Foreign(Ext.CYCLE, "table"), "<table>"),
        (math.inf, "inf"),
        (-(1 << 63), -(1 << 63)),
        (object(), "<object>"),
    ],
)
def test_what_a_script_returned_is_shown_as_json_can_hold_it(value: object, shown: object) -> None:
    assert show_value(value) == shown
    msgspec.json.encode(shown)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (b"open: not asking", "open: not asking"),
        (7, "7"),
        (NULL, "null"),
        ({b"a": [1, 2]}, '{"a":[1,2]}'),
        (b"x" * 200, "x" * 200),
        (b"x" * 201, "x" * 199 + "…"),
    ],
)
def test_the_beginning_of_a_result_stays_on_record(value: object, text: str) -> None:
    assert result_text(value) == text


def test_a_very_deep_result_is_cut_instead_of_overflowing() -> None:
    deep: object = b"end"
    for _ in range(10_000):
        deep = [deep]
    assert b'"..."' in msgspec.json.encode(show_value(deep))
