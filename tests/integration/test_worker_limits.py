"""What ends a run in a real worker, and what the others notice of it."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Why
from tests.fakes.worker_driver import WorkerDriver, a_zygote

LEFT_FOR_SCRIPTS = 4 << 20  # bytes: half of what a thread takes
SPIN = "while true do end"
C_LOOP = "string.find(('a'):rep(30000), '.-.-.-b')"
BLOAT = "local t = {} for i = 1, 1e9 do t[i] = {i} end"

CLOSING = """
    local spin = {__close = function() while true do end end}
    local co = coroutine.create(function() local x <close> = setmetatable({}, spin) coroutine.yield() end)
    coroutine.resume(co) while true do coroutine.close(co) end"""


# Limits


@pytest.mark.parametrize(
    "source",
    [
        SPIN,
        "local function f() while true do pcall(f) end end f()",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        "while true do coroutine.wrap(function() while true do pcall(function() while true do end end) end end)() end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "while true do xpcall(error, function() while true do end end) end",
        "local function f() while true do pcall(coroutine.wrap(f)) end end f()",
        "local x <close> = setmetatable({}, {__close = function() while true do end end}) while true do end",
        "local x <close> = setmetatable({}, {__close = function() while true do end end}) error('x')",
        "while true do load(function() while true do end end) end",
        CLOSING,
        "while true do local s = ('a'):rep(1000000) end",
        "while true do string.gsub(('a'):rep(1000), '.', function() while true do end end) end",
        "while true do pcall(table.sort, {3, 2, 1}, function() while true do end end) end",
        "setmetatable(_G, {__index = function() while true do end end}) local x = nothing",
    ],
)
def test_what_spins_is_ended_by_its_cpu_limit(worker: WorkerDriver, source: str) -> None:
    end = worker.run(source, cpu_ms=50)

    assert (end.ended, end.discarded) == (Ended.CPU, True)
    assert re.fullmatch(r"jobs/x\.lua:\d: cpu limit exceeded", end.reason)
    assert re.match(r"stack traceback:\n\tjobs/x\.lua:\d: in ", end.traceback)
    assert end.cpu_ms >= 45
    assert worker.evaluate("pcall(error, 1)", run=2, vm=2) == [False, 1]


def test_cpu_is_summed_over_the_steps_of_a_run(worker: WorkerDriver) -> None:
    end = worker.run("while true do echo() for i = 1, 50000 do end end", cpu_ms=100)

    assert end.ended == Ended.CPU
    assert len(worker.asked) > 2


@pytest.mark.parametrize("why", [Why.TIMEOUT, Why.CANCELLED, Why.STOPPED])
def test_a_spinner_is_ended_by_a_cancel(worker: WorkerDriver, why: Why) -> None:
    worker.start(f"echo() {SPIN}", until="echo")
    worker.cancel(1, why)

    assert worker.end(1).ended.name == why.name


def test_a_run_that_waits_for_an_op_ends_at_once_when_cancelled(worker: WorkerDriver) -> None:
    worker.start(
        "function on_finally() print('finally') end\nlocal co = coroutine.wrap(function() pcall(sleep, 1e6) end) co()",
        until="sleep",
    )
    worker.cancel(1, Why.TIMEOUT)
    end = worker.end(1)

    assert (end.ended, end.reason, end.discarded) == (Ended.TIMEOUT, "jobs/x.lua:2: timed out", True)
    assert worker.lines == ["finally"]


@pytest.mark.parametrize(("why", "final"), [(Why.TIMEOUT, "false"), (Why.CANCELLED, "true"), (Why.STOPPED, "true")])
def test_a_script_is_told_that_nothing_follows_a_cancelled_or_stopped_run(
    worker: WorkerDriver, why: Why, final: str
) -> None:
    worker.start("function on_error(_, ctx) print(ctx.final) end sleep(1e6)", until="sleep", may_retry=True)
    worker.cancel(1, why)
    worker.end(1)

    assert worker.lines == [final]


def test_a_cancel_that_overtakes_its_begin_is_remembered(worker: WorkerDriver) -> None:
    worker.load(1, SPIN)
    worker.cancel(9)
    worker.begin(9, 1)

    assert worker.end(9).ended == Ended.CANCELLED


def test_after_a_kill_hooks_and_defers_run_with_a_budget_of_their_own(worker: WorkerDriver) -> None:
    end = worker.run(
        "function on_error(err, ctx) print(err) store_set('k', ctx.error) end "
        "function on_finally() print('finally') end"
        f" defer(function() print('deferred') end) {SPIN}",
        cpu_ms=50,
    )

    assert end.ended == Ended.CPU
    assert worker.lines == ["jobs/x.lua:1: cpu limit exceeded", "finally", "deferred"]
    assert [asked[1] for asked in worker.asked] == ["store_set"]


@pytest.mark.parametrize(
    "hooks",
    [
        f"function on_error() {SPIN} end",
        "function on_finally() sleep(1) end",
        f"defer(function() {SPIN} end)",
        f"defer(function() pcall(function() {SPIN} end) end)",
    ],
)
def test_what_follows_a_kill_is_ended_as_well(worker: WorkerDriver, hooks: str) -> None:
    end = worker.run(f"{hooks} {SPIN}", cpu_ms=50)

    assert (end.ended, end.discarded) == (Ended.CPU, True)
    assert b"took too long" in worker.logs[-1][2]


def test_defers_that_overrun_alone_cost_the_run_and_the_vm(worker: WorkerDriver) -> None:
    end = worker.run(f"defer(function() print('second') end) defer(function() {SPIN} end) return 1", cpu_ms=50)

    assert (end.ended, end.discarded, end.result) == (Ended.CPU, True, None)
    assert worker.lines == ["second"]


@pytest.mark.parametrize(
    "source",
    [
        BLOAT,
        "local s = ('x'):rep(1e9)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = coroutine.create(print) end",
        "local s = string.gsub(('x'):rep(1e6), '.', ('y'):rep(1e4))",
        "return table.concat(setmetatable({}, {__len = function() return 1e9 end, __index = tostring}))",
    ],
)
def test_what_needs_too_much_memory_ends(worker: WorkerDriver, source: str) -> None:
    for _ in range(3):  # a busy machine may leave a hook no turn within its half second
        end = worker.run(f"function on_error(err, ctx) print(err) end\n{source}", limit=16 << 20)
        assert (end.ended, end.reason, end.discarded) == (Ended.MEMORY, "jobs/x.lua:2: not enough memory", True)
        assert end.traceback == "stack traceback:\n\tjobs/x.lua:2: in main chunk"
        if b"took too long" not in worker.logs[-1][2]:
            break
    assert worker.logs[-1] == (1, "print", b"jobs/x.lua:2: not enough memory")


BLOATED = """
local function hoard(t)
  for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end
end
function run()
  %s
end"""


@pytest.mark.parametrize(
    "call",
    ["hoard({})", "coroutine.wrap(hoard)({})", "local co = coroutine.wrap(function() echo() hoard({}) end) co()"],
)
def test_a_memory_error_shows_the_line_that_wanted_more(worker: WorkerDriver, call: str) -> None:
    end = worker.run(BLOATED % call, limit=16 << 20)

    assert (end.ended, end.reason) == (Ended.MEMORY, "jobs/x.lua:3: not enough memory")
    assert re.match(r"stack traceback:\n\tjobs/x\.lua:3: in (upvalue 'hoard'|function <jobs/x.lua:2>)\n", end.traceback)
    assert end.traceback.endswith("\tjobs/x.lua:6: in function 'run'")


def test_a_memory_error_that_the_script_raises_again_shows_where_it_did(worker: WorkerDriver) -> None:
    end = worker.run(BLOATED % "local ok, err = pcall(hoard, {})\n  error(err, 0)", limit=16 << 20)

    assert (end.ended, end.reason) == (Ended.MEMORY, "jobs/x.lua:7: not enough memory")


def test_a_memory_error_on_whose_way_out_something_may_be_closed_shows_what_was_called(worker: WorkerDriver) -> None:
    closing = "local x <close> = setmetatable({}, {__close = function() store_set('closed', '1') end})"
    end = worker.run(BLOATED % f"{closing} hoard({{}})", limit=16 << 20)

    assert (end.ended, end.reason) == (Ended.MEMORY, "not enough memory")
    assert end.traceback == "stack traceback:\n\tjobs/x.lua:5: in function 'run', which begins there"
    assert [asked[1] for asked in worker.asked] == ["store_set"]


def test_a_memory_error_in_a_hook_is_logged_with_the_hook_s_place(worker: WorkerDriver) -> None:
    end = worker.run(f"x = 1\nfunction on_success() {BLOAT} end\nreturn 1", limit=16 << 20)

    assert (end.ended, end.discarded) == (Ended.SUCCESS, True)
    assert worker.logs[-1][2] == (
        b"on_success: not enough memory\nstack traceback:\n\tjobs/x.lua:2: in function 'on_success', which begins there"
    )


def test_what_follows_a_failure_is_on_the_budget_of_the_run(worker: WorkerDriver) -> None:
    end = worker.run(f"function on_error() {SPIN} end\nerror('x')", cpu_ms=100)

    assert (end.ended, end.reason) == (Ended.CPU, "jobs/x.lua:1: cpu limit exceeded")


@pytest.mark.parametrize("show", ["error(%s)", "pcall(log, %s)"])
def test_a_value_that_spins_when_it_is_shown_or_logged_is_ended(worker: WorkerDriver, show: str) -> None:
    spins = f"setmetatable({{}}, {{__tostring = function() {SPIN} end}})"
    end = worker.run(f"function on_finally() print('finally') end\n{show % spins}", cpu_ms=100)

    assert (end.ended, end.discarded) == (Ended.CPU, True)
    assert worker.logs == [(1, "print", b"finally")]


def test_what_follows_a_failure_can_be_cancelled_while_it_waits(worker: WorkerDriver) -> None:
    worker.start(
        "function on_error() sleep(1e6) end\nfunction on_finally() print('finally') end\nerror('x')", until="sleep"
    )
    worker.cancel(1, Why.TIMEOUT)
    end = worker.end(1)

    assert (end.ended, end.reason) == (Ended.TIMEOUT, "jobs/x.lua:1: timed out")
    assert worker.lines == ["finally"]


CLOSER = "return setmetatable({}, {__close = function() print('closed') %s end})"


@pytest.mark.parametrize("run", [1, 2])
def test_what_a_failure_leaves_open_is_closed_before_the_hooks(worker: WorkerDriver, run: int) -> None:
    """In its first run the script learns only on the way that there is something to be closed."""
    worker.handlers["_require"] = lambda _: [b"m.lua", (CLOSER % "").encode()]
    worker.load(
        1, "function on_error(err) print(err) end\nfunction run() local x <close> = require('m') error('x') end"
    )
    for number in range(1, run + 1):
        worker.logs.clear()
        worker.begin(number, 1)
        end = worker.end(number)

    assert (end.ended, end.reason, end.discarded) == (Ended.ERROR, "jobs/x.lua:2: x", False)
    assert worker.lines == ["closed", "jobs/x.lua:2: x"]


BUILT = "setmetatable({}, {['__cl' .. 'ose'] = function() print('closed') end})"


@pytest.mark.parametrize(
    "script",
    [
        f"local x <close> = {BUILT} error('x')",
        f"local x < close > = {BUILT} error('x')",
        f"for _ in next, {{1}}, nil, {BUILT} do error('x') end",
        f'load("local x <cl" .. "ose> = ... error(\'x\')")({BUILT})',
    ],
)
def test_what_closes_without_saying_so_is_closed_too(worker: WorkerDriver, script: str) -> None:
    end = worker.run(script)

    assert (end.ended, worker.lines) == (Ended.ERROR, ["closed"])


def test_an_error_on_the_way_out_takes_the_place_of_the_first(worker: WorkerDriver) -> None:
    worker.handlers["_require"] = lambda _: [b"m.lua", (CLOSER % "error('worse')").encode()]
    end = worker.run("local x <close> = require('m') error('x')")

    assert (end.ended, end.reason) == (Ended.ERROR, "m.lua:1: worse")


@pytest.mark.parametrize("spin", [SPIN, "while true do pcall(function() while true do end end) end"])
def test_what_spins_while_it_is_closed_is_ended(worker: WorkerDriver, spin: str) -> None:
    worker.handlers["_require"] = lambda _: [b"m.lua", (CLOSER % spin).encode()]
    end = worker.run("local x <close> = require('m') error('x')", cpu_ms=100)

    assert (end.ended, end.discarded) == (Ended.CPU, True)


def test_an_answer_that_does_not_fit_ends_the_run_not_the_worker(worker: WorkerDriver) -> None:
    worker.handlers["echo"] = lambda _: [b"x" * (12 << 20)]
    end = worker.run("local s = echo() local t = echo() local u = echo() return 1", limit=16 << 20)

    assert (end.ended, end.reason) == (Ended.MEMORY, "jobs/x.lua:1: not enough memory")
    assert worker.run("return 1", run=2, vm=2).result == [1]


def test_garbage_makes_room_for_an_answer(worker: WorkerDriver) -> None:
    worker.handlers["echo"] = lambda _: [b"x" * (12 << 20)]

    assert worker.run("for i = 1, 5 do echo() end return 1", limit=20 << 20).result == [1]


def test_a_c_loop_is_reported_as_stuck_while_others_run_on(worker: WorkerDriver) -> None:
    worker.start(C_LOOP, cpu_ms=50)
    assert worker.run("return 1", run=2, vm=2).result == [1]
    assert worker.stepped_runs() == {1}
    worker.wait_for(wire.RunStuck, 1)

    assert worker.run("return 1", run=3, vm=3).result == [1]


def test_pings_are_answered_while_a_script_spins(worker: WorkerDriver) -> None:
    worker.start(SPIN)
    worker.say(wire.PingWorker(5))
    pong = worker.wait_for(wire.Pong, 5)

    assert pong.largest == [(1, pong.used)]
    assert 10_000 < pong.used < 200_000


def test_several_spinners_leave_room_for_others(worker: WorkerDriver) -> None:
    for run in range(1, 7):
        worker.load(run, SPIN)
        worker.begin(run, run, cpu_ms=60)

    assert worker.run("return echo(1)", run=100, vm=100).result == [1]
    assert [worker.end(run).ended for run in range(1, 7)] == [Ended.CPU] * 6


# Logs


def test_a_flood_of_log_lines_waits_for_credit_and_leaves_some_to_others(worker: WorkerDriver) -> None:
    worker.credits_logs = False
    worker.start("while true do print('x') end")
    worker.expect_silence(wire.RunEnd, 0.3)
    assert len(worker.logs) <= wire.LOG_CREDIT
    worker.cancel(1)

    assert worker.end(1).ended == Ended.CANCELLED


def test_credit_lets_a_flood_go_on(worker: WorkerDriver) -> None:
    end = worker.run("for i = 1, 2000 do print(i) end")

    assert end.ended == Ended.SUCCESS
    assert list(map(int, worker.lines)) == list(range(1, 2001))


def test_a_long_log_line_is_cut_and_says_so(worker: WorkerDriver) -> None:
    worker.run("print(('x'):rep(20000))")

    assert worker.logs[0][2] == b"x" * wire.LOG_LINE + b"... (3616 bytes cut)"


def leave_no_thread(worker: WorkerDriver) -> None:
    """No room for the stack of another one: that holds for root too, as a limit of processes does not."""
    pages = int(Path(f"/proc/{worker.pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + LEFT_FOR_SCRIPTS
    resource.prlimit(worker.pid, resource.RLIMIT_AS, (limit, limit))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
@pytest.mark.parametrize(
    ("source", "ended"),
    [
        ("while os.clock() < before + 0.05 do end", Ended.SUCCESS),
        ("while true do end", Ended.CPU),
        ("echo(('x'):rep(1 << 18))", Ended.SUCCESS),
    ],
)
def test_a_worker_that_can_have_no_further_thread_goes_on_with_those_it_has(source: str, ended: Ended) -> None:
    with a_zygote(keeps_user=True) as zygote, closing(zygote.fork().init()) as worker:
        assert worker.load(1, f"before = os.clock() {source}") is None
        leave_no_thread(worker)

        for run in (1, 2, 3):
            worker.begin(run, 1, cpu_ms=100)
            assert worker.end(run).ended == ended
            if ended != Ended.SUCCESS:
                assert worker.load(1, source) is None
