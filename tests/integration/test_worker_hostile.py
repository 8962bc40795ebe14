"""Scripts that mean harm, or make an honest mistake of the same kind: none ends the worker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended
from tests.fakes.worker_driver import WorkerDriver, a_zygote

LIMIT = 1 << 20
VMS, TORTURED_VMS = 500, 50_000
WORKERS = 2  # side by side
SEED = 20260514
ENDS = {Ended.SUCCESS, Ended.ERROR, Ended.CPU, Ended.MEMORY}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerDriver]:
    with a_zygote() as zygote:
        worker = zygote.fork().init()
        yield worker
        worker.close()


KILLERS = [
    "return setmetatable({}, {__newindex = function() error('boom') end, __index = error})",
    "setmetatable(_G, {__index = error, __newindex = error}) debug = nil return x",
    "debug = nil setmetatable(_G, {__index = function() error('x') end})",
    "debug = {traceback = function() while true do end end} error('x')",
    "return 0/0, 1/0, -1/0, {[1/0] = 1}",
    "return function() end, coroutine.create(print), print",
    "local t = {} t[t] = t return t",
    "local t = {} for i = 1, 500 do t = {t} end return t",
    "local function f() return coroutine.wrap(f)() end f()",
    "local function f() return pcall(f) end return f()",
    "local function f() return f() + 1 end f()",
    "local function f() string.gsub('x', '.', f) end f()",
    "local s = ('('):rep(1000) return load('return ' .. s)",
    "return ('x'):rep(1000000):find(('x?'):rep(1000))",
    "error(setmetatable({}, {__tostring = function() error('inner') end}))",
    "error(setmetatable({}, {__tostring = function() return {} end}))",
    "error(coroutine.running())",
    "error('\\0\\255')",
    "local ctx = ... setmetatable(ctx, {__newindex = error, __index = error}) ctx.shared = nil error('x')",
    "function on_error() error({}) end function on_finally() on_error = nil _G = nil error() end error('x')",
    "on_error, on_finally, on_success, run = 1, {}, 'x', false return false",
    "defer(coroutine.yield) defer(error) defer(function() defer(defer) end)",
    "coroutine.wrap(function() coroutine.close(coroutine.running()) end)()",
    "local co co = coroutine.create(function() return coroutine.resume(co) end) return coroutine.resume(co)",
    "local co co = coroutine.wrap(function() return co() end) return co()",
    "local x <close> = setmetatable({}, {__close = function() error('in close') end}) error('x')",
    "return string.format('%99d%99.99f', 1, 1), pcall(string.format, ('%d'):rep(10000))",
    "return table.unpack({}, 1, 1e6)",
    "return select(-1, table.unpack({}, 1, 200))",
    "local t = setmetatable({}, {__len = function() return 2^53 end}) return pcall(table.insert, t, 1)",
    "for i = 1, 30 do store_set(('k'):rep(i * 10), i) end",
    "print(setmetatable({}, {__tostring = function() return ('x'):rep(100000) end}), {}, print, nil)",
    "echo(setmetatable({}, {__index = error, __pairs = error, __len = error}))",
    "return load('goto a; ::b::')",
    "string.rep, table.concat, next, type, pcall, error = nil return #_G",
]


@pytest.mark.parametrize("source", KILLERS)
def test_a_process_killer_ends_at_most_its_own_run(worker: WorkerDriver, source: str) -> None:
    end = worker.run(source, limit=4 << 20, cpu_ms=500)

    assert end.ended in ENDS
    assert worker.run("return echo(1)", run=2, vm=2).result == [1]
    worker.say(wire.DropVm(1))
    worker.say(wire.DropVm(2))


FILL = "hoard = {{}} pcall(function() for i = 1, 1e9 do hoard[i] = ('x'):rep({size}) .. i end end)"
DEEDS = [
    "return echo(1)",
    "return echo({1, 2, 3}, 'x')",
    "return echo(('y'):rep(#hoard))",
    "print('x', {})",
    "log.info('x')",
    "error('x')",
    "error({})",
    "return coroutine.wrap(function() return echo(1) end)()",
    "defer(function() print('x') end)",
    "function on_error(err) store_set('e', err) end error('x')",
    "return json_encode({1, {2}})",
    "hoard[1], hoard[2], hoard[3] = nil return store_get('k')",
    "return require('m')",
    "return load('return 1')()",
    "return hoard[1], hoard",
    "while true do pcall(echo, 'x') hoard[#hoard + 1] = {} end",
]


SIZES = [1, 40, 40, 1000, 1000, 1000, 30_000, 30_000, 30_000]  # of what fills it: the smaller, the longer that takes
FILLED = 5  # one VM in so many is filled to its memory limit, at 7 ms; the others take 1.5


def a_hostile_script(choice: random.Random) -> str:
    if choice.randrange(FILLED) == 0:
        return f"{FILL.format(size=choice.choice(SIZES))} {choice.choice(DEEDS)}"
    first, second = choice.choices(KILLERS, k=2)
    return f"pcall(load([==[{first}]==])) {second}"


def drive_hostile_vms(count: int, seed: int) -> None:
    """Each of them in the same worker, which must outlive them all."""
    choice = random.Random(seed)
    with a_zygote() as zygote, closing(zygote.fork().init()) as worker:
        worker.handlers["echo"] = lambda _: [b"z" * choice.choice([0, 10, 1000, 50_000, 500_000])]
        worker.handlers["_require"] = lambda _: [b"m.lua", b"return 1"]
        for number in range(1, count + 1):
            source = a_hostile_script(choice)
            assert worker.load(number, source, limit=choice.randrange(LIMIT, LIMIT * 3 // 2)) is None
            worker.begin(number, number, cpu_ms=300)
            assert worker.end(number).ended in ENDS, source
            worker.say(wire.DropVm(number))
            worker.asked.clear()
        worker.say(wire.PingWorker(1))
        assert worker.wait_for(wire.Pong).number == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_hostile_vm_ends_its_worker(torture: bool) -> None:
    """lupa pushes values unprotected: one push too many and the process aborts."""
    count = TORTURED_VMS if torture else VMS
    with ThreadPoolExecutor(WORKERS) as threads:
        for driven in [threads.submit(drive_hostile_vms, count // WORKERS, SEED + n) for n in range(WORKERS)]:
            driven.result()
