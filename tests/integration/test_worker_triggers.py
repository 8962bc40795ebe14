"""What a script does that a change of state has started, and what it is told of incidents: in a real worker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended
from tests.fakes.worker_driver import End, WorkerDriver

EVENT = {"type": "state", "event_type": "state:updated", "scope": "orders", "key": b"\xff\0", "new_value": {b"n": 2}}
ON_STATE = "function on_state(event, ctx) handled = (handled or 0) + 1 return event.new_value.n, handled end\n"


def react(
    worker: WorkerDriver, run: int = 1, *, conditions: Sequence[str] = (), trigger: dict[str, object] | None = None
) -> End:
    """Let the script in VM 1 react to EVENT."""
    ctx = {"job": "x", "run_id": run, "trigger": trigger or {"type": "state"}}
    arguments = wire.pack([ctx, False, EVENT, list(conditions)])
    worker.say(wire.BeginRun(run, 1, "trigger", arguments, 10_000))
    return worker.end(run)


def test_on_state_gets_the_event_and_the_context_that_has_it_too(worker: WorkerDriver) -> None:
    worker.load(1, "function on_state(event, ctx) return event, ctx.trigger == event, ctx.job, type(ctx.shared) end")

    end = react(worker)

    told = {name.encode(): value.encode() if isinstance(value, str) else value for name, value in EVENT.items()}
    assert end.result == [told, True, b"x", b"table"]


def test_a_retry_finds_the_event_in_its_trigger(worker: WorkerDriver) -> None:
    worker.load(
        1, "function on_state(event, ctx) return ctx.trigger.type, ctx.trigger.of, ctx.trigger.event == event end"
    )

    assert react(worker, trigger={"type": "retry", "of": 7}).result == [b"retry", 7, True]


@pytest.mark.parametrize(
    ("source", "results"),
    [
        ("loads = (loads or 0) + 1 function on_state() return loads end", [[1], [1]]),
        ("function run(ctx) return ctx.trigger.key end", [[b"\xff\0"], [b"\xff\0"]]),
        (
            "local ctx = ... visits = (visits or 0) + 1 return visits, ctx.trigger.scope",
            [[1, b"orders"], [2, b"orders"]],
        ),
    ],
    ids=["the file once and then its handler", "without on_state its run", "without either the file"],
)
def test_what_runs_for_each_change(worker: WorkerDriver, source: str, results: list[list[object]]) -> None:
    worker.load(1, source)

    assert [react(worker, run).result for run in (1, 2)] == results


def test_runs_of_other_kinds_see_the_same_file(worker: WorkerDriver) -> None:
    worker.load(
        1, "loads = (loads or 0) + 1 function on_state() return 's', loads end function run() return 'r', loads end"
    )
    first = react(worker, 1).result
    worker.begin(2, 1)

    assert (first, worker.end(2).result, react(worker, 3).result) == ([b"s", 1], [b"r", 1], [b"s", 1])


def test_a_file_that_failed_half_way_is_run_again(worker: WorkerDriver) -> None:
    worker.load(
        1, "function on_state() return 'handled' end tries = (tries or 0) + 1 if tries == 1 then error('no') end"
    )

    assert react(worker, 1).ended == Ended.ERROR
    assert react(worker, 2).result == [b"handled"]


@pytest.mark.parametrize("answer", ["nil", "0", "''", "{}", "true", ""])
def test_a_condition_that_does_not_say_false_lets_it_run(worker: WorkerDriver, answer: str) -> None:
    worker.load(1, f"{ON_STATE} function ok(event, ctx) asked = event.key == ctx.trigger.key return {answer} end")

    assert react(worker, conditions=["ok"]).ended == Ended.SUCCESS


def test_only_false_blocks_and_the_record_says_who_did(worker: WorkerDriver) -> None:
    worker.load(1, f"{ON_STATE} function no() return false end function count() return handled end")
    end = react(worker, conditions=["no"])

    assert (end.ended, end.reason, end.traceback, end.discarded) == (Ended.DECLINED, "no returned false", "", False)
    assert react(worker, 2).result == [2, 1]


def test_of_several_conditions_one_is_enough(worker: WorkerDriver) -> None:
    worker.load(1, f"{ON_STATE} function no() return false end function yes() end")

    assert react(worker, 1, conditions=["no", "yes"]).ended == Ended.SUCCESS
    assert react(worker, 2, conditions=["no", "no"]).ended == Ended.DECLINED


def test_a_condition_may_call_async_functions(worker: WorkerDriver) -> None:
    worker.load(1, f"{ON_STATE} function ok() return store_get('k') == 'something else' end")

    assert react(worker, conditions=["ok"]).ended == Ended.DECLINED


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "`when` names ok, and there is no such function"),
        ("ok = true", "`when` names ok, and there is no such function"),
    ],
)
def test_a_condition_that_is_not_there_fails_the_run_and_the_handler_is_not_called(
    worker: WorkerDriver, body: str, reason: str
) -> None:
    worker.load(1, f"{ON_STATE}{body}")
    end = react(worker, conditions=["ok"])

    assert (end.ended, end.reason) == (Ended.ERROR, reason)
    assert react(worker, 2).result == [2, 1]


def test_a_condition_that_raises_skips_the_run_and_is_logged(worker: WorkerDriver) -> None:
    worker.load(1, f"{ON_STATE}function ok() error('boom') end")
    end = react(worker, conditions=["ok"])

    assert (end.ended, end.reason, end.discarded) == (Ended.DECLINED, "ok failed: jobs/x.lua:2: boom", False)
    [(_, level, text)] = worker.logs
    assert (level, text.splitlines()[0]) == ("error", b"ok: jobs/x.lua:2: boom")
    assert react(worker, 2).result == [2, 1]


def test_beside_a_condition_that_raises_another_may_let_it_run(worker: WorkerDriver) -> None:
    worker.load(1, f"{ON_STATE} function bad() store_get('k') error('boom') end function yes() end")

    assert react(worker, 1, conditions=["bad", "yes"]).ended == Ended.SUCCESS
    assert react(worker, 2, conditions=["yes", "bad"]).ended == Ended.SUCCESS


def test_a_condition_without_a_handler_is_an_error_that_says_so(worker: WorkerDriver) -> None:
    worker.load(1, "function ok() return false end")
    end = react(worker, conditions=["ok"])

    assert end.ended == Ended.ERROR
    assert "needs a handler" in end.reason


HOOKS = """
function on_success() log("success") end
function on_error(err) log("error " .. err) end
function on_finally() log("finally") end
"""


def test_hooks_follow_as_for_any_run(worker: WorkerDriver) -> None:
    worker.load(1, f"{HOOKS} function on_state(event) if event.key == 'x' then return 1 end error('bad', 0) end")
    end = react(worker)

    assert (end.ended, end.reason) == (Ended.ERROR, "bad")
    assert worker.lines == ["error bad", "finally"]


def test_no_hook_follows_a_no_but_what_was_deferred_runs(worker: WorkerDriver) -> None:
    worker.load(1, f"{HOOKS} {ON_STATE} function no() defer(function() log('deferred') end) return false end")
    end = react(worker, conditions=["no"])

    assert end.ended == Ended.DECLINED
    assert worker.lines == ["deferred"]


def test_a_result_of_false_is_a_failure(worker: WorkerDriver) -> None:
    worker.load(1, "function on_state() return nil, 'not now' end")

    assert (react(worker).ended, worker.stepped_runs()) == (Ended.ERROR, set())


def test_a_handler_that_never_ends_is_killed(worker: WorkerDriver) -> None:
    worker.load(1, "function on_state() while true do end end")
    ctx = {"job": "x", "run_id": 1, "trigger": {"type": "state"}}
    worker.say(wire.BeginRun(1, 1, "trigger", wire.pack([ctx, False, EVENT, []]), 50))

    assert worker.wait_for(wire.RunEnd, 1).ended == Ended.CPU


def test_a_change_waits_for_the_run_that_is_executing_the_file(worker: WorkerDriver) -> None:
    worker.handlers["sleep"] = lambda _: []
    del worker.handlers["echo"]
    worker.start(
        "loads = (loads or 0) + 1 echo() function run() end function on_state() return loads end", until="echo"
    )
    arguments = wire.pack([{"trigger": {"type": "state"}}, False, EVENT, []])
    worker.say(wire.BeginRun(2, 1, "trigger", arguments, 10_000))
    worker.wait_until_asked("sleep", 2)
    worker.answer(1, [])

    assert worker.end(2).result == [1]


def test_a_change_that_starts_tasks_runs_them(worker: WorkerDriver) -> None:
    worker.handlers |= {"_tasks": lambda _: [b"jobs/x", b"local", []], "_task": lambda _: []}
    worker.load(
        1, "task{name = 'a', run = function() log('ran ' .. values.host) end} function wanted() return true end"
    )
    for run in (1, 2):
        arguments = wire.pack([{"job": "x", "trigger": {}}, False, EVENT, ["wanted"], {"host": f"web{run}"}])
        worker.say(wire.BeginRun(run, 1, "trigger", arguments, 10_000))
        assert worker.end(run).ended == Ended.SUCCESS
    assert worker.lines == ["ran web1", "ran web2"]


def test_a_condition_and_a_handler_may_say_that_there_is_nothing_to_do(worker: WorkerDriver) -> None:
    worker.load(1, "function on_state() return skip('seen') end function new() return skip('not new') end")

    ends = (react(worker, conditions=["new"]), react(worker, 2))
    assert [(end.ended, end.reason) for end in ends] == [(Ended.DECLINED, "not new"), (Ended.SKIPPED, "seen")]


# Incidents

INCIDENT = {"id": 42, "text": "no space", "since": 1.5}
TOLD = "function on_down(incident, ctx) return incident.id, ctx.trigger.hook, type(ctx.shared) end "


def tell(worker: WorkerDriver, run: int = 1, hook: str = "on_down", values: dict[str, object] | None = None) -> End:
    """Tell the script in VM 1 of the incident."""
    ctx = {"job": "x", "run_id": run, "trigger": {"type": "alert", "hook": hook, "incident": INCIDENT}}
    given = [values] if values else []
    arguments = wire.pack([ctx, False, hook, INCIDENT, *given])
    worker.say(wire.BeginRun(run, 1, "alert", arguments, 10_000))
    return worker.end(run)


def test_the_function_is_given_the_incident_and_the_context(worker: WorkerDriver) -> None:
    worker.load(1, TOLD + "function run() error('not called') end")
    assert tell(worker).result == [42, b"on_down", b"table"]


def test_it_shares_the_globals_of_the_job_s_runs_and_calls_neither_run_nor_the_file_again(worker: WorkerDriver) -> None:
    worker.start(
        "loads = (loads or 0) + 1 function run() runs = (runs or 0) + 1 end function on_down() return loads, runs end"
    )
    worker.end(1)
    assert tell(worker, 2).result == [1, 1]
    assert tell(worker, 3).result == [1, 1]


def test_no_hook_follows_and_what_is_deferred_does(worker: WorkerDriver) -> None:
    worker.load(
        1, HOOKS + "function on_down() defer(function() log('deferred') end) error('no') end function run() end"
    )
    end = tell(worker)
    assert (end.ended, end.reason) == (Ended.ERROR, "jobs/x.lua:5: no")
    assert worker.lines == ["deferred"]


def test_false_and_nil_with_a_reason_fail_it_as_any_run(worker: WorkerDriver) -> None:
    worker.load(1, "function on_down() return nil, 'too late' end function on_up() return false end function run() end")
    assert (tell(worker).ended, tell(worker, 2, "on_up").ended) == (Ended.ERROR, Ended.ERROR)


def test_where_there_is_no_such_function_the_run_is_skipped(worker: WorkerDriver) -> None:
    worker.load(1, "on_down = 7 function run() error('not called') end")
    end = tell(worker)
    assert (end.ended, end.reason) == (Ended.DECLINED, "there is no function on_down")


def test_a_file_that_fails_behind_the_function_is_told_all_the_same(worker: WorkerDriver) -> None:
    worker.load(1, TOLD + "error('half way')")
    assert tell(worker).result == [42, b"on_down", b"table"]


def test_a_file_that_fails_before_it_fails_the_run_and_says_where(worker: WorkerDriver) -> None:
    worker.load(1, "error('half way') " + TOLD)
    end = tell(worker)
    assert (end.ended, end.reason) == (Ended.ERROR, "jobs/x.lua:1: half way")
    assert "in main chunk" in end.traceback


def test_it_may_wait_and_sees_its_job_s_values(worker: WorkerDriver) -> None:
    worker.load(1, "function on_down() return values.city end function run() end")
    assert tell(worker, values={"city": "Kiel"}).result == [b"Kiel"]


def test_a_file_of_tasks_is_told_and_none_of_them_runs(worker: WorkerDriver) -> None:
    worker.load(1, TOLD + "task('a'):command(function() error('not called') end):build()")
    assert tell(worker).result == [42, b"on_down", b"table"]
