"""What a script is told of incidents of its job: in a real worker."""

from __future__ import annotations

from spyweb.lua import wire
from spyweb.lua.wire import Ended
from tests.fakes.worker_driver import End, WorkerDriver

INCIDENT = {"id": 42, "text": "no space", "since": 1.5}
HOOKS = """
function on_success() log("success") end
function on_error(err) log("error " .. err) end
function on_finally() log("finally") end
"""
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
