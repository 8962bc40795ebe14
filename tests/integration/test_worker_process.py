"""A real worker, forked by a real zygote: what scripts can not reach, and how VMs and processes end."""

from __future__ import annotations

import signal
import time

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended
from tests.fakes.worker_driver import WorkerDriver, ZygoteDriver, a_zygote

SPIN = "while true do end"
C_LOOP = "string.find(('a'):rep(30000), '.-.-.-b')"


# Isolation


@pytest.mark.parametrize(
    "poison",
    [
        "string.rep = nil string.sub = nil string.format = nil table.concat = nil",
        "getmetatable('').__index = {}",
        "pcall, error, type, select, next, tostring = nil",
        "coroutine.yield = nil coroutine.resume = nil",
        "setmetatable(_G, {__index = error, __newindex = error})",
        "for k in pairs(_G) do _G[k] = nil end",
    ],
)
def test_a_script_can_spoil_only_its_own_vm(worker: WorkerDriver, poison: str) -> None:
    worker.start(
        f"local echo = echo local function poison() {poison} end pcall and pcall(poison) return echo({{1}})".replace(
            "pcall and pcall(poison)", "pcall(poison)"
        )
    )

    assert worker.end(1).ended == Ended.SUCCESS
    assert worker.evaluate("('x'):rep(2), pcall(error, 'e')", run=2, vm=2) == [b"xx", False, b"e"]


@pytest.mark.parametrize(
    ("expressions", "values"),
    [
        ("load('\\27Lua')", [None, b"attempt to load a binary chunk (mode is 't')"]),
        ("load('return 1', 'n', 'b')", [None, b"attempt to load a text chunk (mode is 'b')"]),
        ("load('return 1', 'n', 'bt')()", [1]),
        ("load('x = 5 return x')(), load('return x', 'n', 't', {x = 6})(), x", [5, 6, 5]),
        ("pcall(setmetatable, {}, {__gc = print})", [False, b"jobs/x.lua:1: __gc is not available"]),
        ("getmetatable('')", [False]),
        ("collectgarbage('collect'), collectgarbage('count') > 10", [0, True]),
        ("_G == _ENV, _G._G == _G", [True, True]),
        ("getmetatable(setmetatable({}, {__metatable = 'locked'}))", [b"locked"]),
    ],
)
def test_what_is_left_of_lua_is_harmless(worker: WorkerDriver, expressions: str, values: list[object]) -> None:
    assert worker.evaluate(expressions) == values


def test_nested_protected_calls_are_bounded_so_that_a_kill_finds_room(worker: WorkerDriver) -> None:
    deep = "local function nest(n) return n == 0 and 'deep' or select(2, pcall(nest, n - 1)) end return nest(%d)"

    assert worker.run(deep % 140).result == [b"deep"]
    end = worker.run(deep % 200, run=2, vm=2)
    assert b"too many nested protected calls" in str(end.result).encode()


def test_runs_abandoned_half_way_leave_nothing_behind(worker: WorkerDriver) -> None:
    worker.load(
        1, "if (...).run_id == 500 then return pcall(function() return 'fine' end) end pcall(function() wait() end)"
    )
    for run in range(1, 200):
        worker.begin(run, 1, until="wait")
    worker.begin(500, 1)

    assert worker.end(500).result == [True, b"fine"]


# VMs and workers


def test_a_dropped_vm_lets_its_run_end_and_takes_no_other(worker: WorkerDriver) -> None:
    del worker.handlers["echo"]
    worker.start("return echo()", until="echo")
    worker.say(wire.DropVm(1))
    worker.begin(2, 1)
    assert worker.end(2).ended == Ended.UNBEGUN
    worker.answer(1, [1])

    assert worker.end(1).result == [1]


def test_dropping_a_vm_of_60_mb_frees_it_without_holding_up_others(worker: WorkerDriver) -> None:
    worker.load(2, "return 1")
    end = worker.run("t = {} for i = 1, 600000 do t[i] = {i} end return #t", limit=96 << 20)
    assert end.result == [600_000]
    worker.say(wire.DropVm(1))
    worker.begin(2, 2)
    assert worker.end(2).result == [1]
    used = 1 << 30
    for number in range(100):
        worker.say(wire.PingWorker(number))
        used = worker.wait_for(wire.Pong, number).used
        if used < 1 << 20:
            break
        time.sleep(0.02)

    assert used < 1 << 20


def test_the_slots_show_which_run_was_being_stepped_when_a_worker_died(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init()
    worker.start(C_LOOP, run=77)
    worker.load(2, "wait()")
    worker.begin(78, 2)
    worker.wait_until_asked("wait")
    zygote.kill(worker.pid)

    assert zygote.wait_for(wire.WorkerExited, worker.pid).exit_code == -signal.SIGKILL
    assert worker.stepped_runs() == {77}
    worker.close()


def test_a_worker_ends_when_the_daemon_hangs_up(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init()
    worker.close()

    assert zygote.wait_for(wire.WorkerExited, worker.pid).exit_code == 0


def test_a_worker_that_is_told_nonsense_ends_loudly(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init()
    worker.say(wire.PingWorker("no number"))  # type: ignore[arg-type]

    assert zygote.wait_for(wire.WorkerExited, worker.pid).exit_code == 70
    worker.close()


def test_the_zygote_takes_its_workers_with_it() -> None:
    with a_zygote() as zygote:
        worker = zygote.fork().init()
        worker.load(1, SPIN)
        worker.begin(1, 1)
        zygote.process.kill()
        zygote.process.wait()
        with pytest.raises(AssertionError):
            worker.end(1)

    assert worker.is_gone
    worker.close()


def test_the_zygote_ends_when_the_daemon_hangs_up() -> None:
    with a_zygote() as zygote:
        worker = zygote.fork().init()

    assert zygote.process.returncode == 0
    worker.wait_until_gone()
    worker.close()


def test_a_worker_knows_the_time_zone() -> None:
    with a_zygote({"TZ": "Asia/Tokyo"}) as zygote:
        worker = zygote.fork().init()
        assert worker.run("return os.date('%H', 0)").result == [b"09"]
        worker.close()
