from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spyweb.lua import wire
from spyweb.lua.session import Procedure
from spyweb.lua.wire import Ended, Form, Why
from spyweb.lua.worker.vm import LAST_WORDS, VM, Bytecode, StepKind, init_of
from tests.fakes.vm import FakeCallbacks, run_to_end

INIT = init_of({"ops": ["echo", "state.lock"], "engine": {}})
LIMIT = 4 << 20


class Failing(dict[str, bytes]):
    """Our Lua files, of which one is too large for the memory that there is when it is first asked for."""

    def __init__(self, bytecode: Bytecode, name: str) -> None:
        super().__init__(bytecode)
        self._name = name
        self._left = 2  # the prelude asks again once it has collected garbage

    def __getitem__(self, name: str) -> bytes:
        if name == self._name and self._left:
            self._left -= 1
            return bytes(LIMIT)
        return super().__getitem__(name)


@pytest.fixture
def vm(bytecode: Bytecode, callbacks: FakeCallbacks) -> Iterator[VM]:
    vm = VM(bytecode, INIT, LIMIT, callbacks, main_count=1000)
    yield vm
    vm.close()


def start(vm: VM, source: bytes, *, run: int = 1, may_retry: bool = False) -> tuple[object, ...]:
    assert vm.compile(b"x.lua", source) is None
    vm.begin(run, "run", wire.pack([{"job": "x"}, may_retry]))
    return vm.start(run)


def test_where_no_hook_can_be_armed_a_counting_one_ends_a_run(vm: VM, callbacks: FakeCallbacks) -> None:
    callbacks.reason = Why.CPU
    told = start(vm, b"while true do end")

    assert told[:3] == (StepKind.END, Ended.CPU, b"x.lua:1: cpu limit exceeded")


def test_what_follows_a_kill_gets_a_coroutine_of_its_own(vm: VM) -> None:
    start(vm, b"function on_error(err) echo(err) end echo()")
    told = vm.kill(1, Why.CANCELLED)
    assert (told[0], told[2]) == (StepKind.AFTERMATH, Ended.CANCELLED)
    assert vm.start(1) == (StepKind.OP, b"echo", Form.PLAIN, b"x.lua:1: cancelled")
    ended = vm.step(1, Form.PLAIN, [])

    assert (ended[0], ended[1], ended[5]) == (StepKind.END, Ended.CANCELLED, True)


FILLED = b"""
local keep, size = {}, 65536
function on_error(err) log('on_error ' .. err) end
function on_finally() log('on_finally') end
defer(function() log('deferred') end)
local own = setmetatable({}, { __tostring = function() return 'own' end })
local function add() keep = { keep, ('x'):rep(size) .. #keep } end
while size >= LEAST do
  if not pcall(add) then size = size // 2 end
end
"""


def end_of(vm: VM, told: tuple[object, ...]) -> tuple[object, ...]:
    """As a worker goes on with what a step told."""
    while told[0] != StepKind.END:
        if told[0] in (StepKind.STARVED, StepKind.AFTERMATH):
            vm.stretch()
        told = vm.start(1)
    return told


@pytest.mark.parametrize("least", [256, 1024, 2048, 4096, 8192, 16384])
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (b"error('boom')", b"x.lua:11: boom"),
        (b"local t = nil t.x = 1", b"x.lua:11: attempt to index a nil value (local 't')"),
        (b"error(own)", b"own"),
    ],
)
def test_a_script_that_fails_with_its_memory_full_ends_with_its_own_reason_and_its_hooks(
    vm: VM, callbacks: FakeCallbacks, least: int, failure: bytes, reason: bytes
) -> None:
    ended = end_of(vm, start(vm, FILLED.replace(b"LEAST", b"%d" % least) + failure))

    assert (ended[1], ended[2]) == (Ended.ERROR, reason)
    assert callbacks.lines == [(b"info", b"on_error " + reason), (b"info", b"on_finally"), (b"info", b"deferred")]


def test_a_vm_that_had_to_be_given_room_to_tell_a_failure_is_lost(vm: VM) -> None:
    assert end_of(vm, start(vm, FILLED.replace(b"LEAST", b"256") + b"error('boom')"))[5] is True


def test_a_kill_that_finds_the_memory_full_shows_where_and_lets_the_hooks_run(vm: VM, callbacks: FakeCallbacks) -> None:
    source = FILLED.replace(b"LEAST", b"256") + b"while true do end"
    asked = iter([0] * 50)  # by then the memory is full
    callbacks.why = lambda: next(asked, Why.CPU)  # type: ignore[method-assign]
    ended = end_of(vm, start(vm, source))

    assert (ended[1], ended[2], ended[5]) == (Ended.CPU, b"x.lua:11: cpu limit exceeded", True)
    assert [text for _, text in callbacks.lines] == [
        b"on_error x.lua:11: cpu limit exceeded",
        b"on_finally",
        b"deferred",
    ]


def test_there_is_no_room_for_more_than_the_limit_but_for_last_words(vm: VM) -> None:
    assert vm.has_room(LIMIT // 2)
    assert not vm.has_room(LIMIT)
    vm.stretch()
    assert vm.has_room(LIMIT + LAST_WORDS // 2)


def test_garbage_does_not_count_against_room(vm: VM) -> None:
    start(vm, b"t = ('x'):rep(1500000) t = nil")

    assert vm.has_room(LIMIT - 300_000)


def test_an_idle_vm_is_small(vm: VM) -> None:
    start(vm, b"function run(ctx) return 1 end")

    assert vm.used < 62_000


def script_run(vm: VM, run: int) -> None:
    vm.begin(run, "run", wire.pack([{"job": "x", "run": run}, False]))
    told = vm.start(run)
    while told[0] == StepKind.OP:
        told = vm.step(run, Form.PLAIN, [b"%d" % run])
    assert told[:2] == (StepKind.END, Ended.SUCCESS)


def monitor_run(vm: VM, run: int) -> None:
    items = [{"fields": {"title": f"{run} {number}"}, "matches": []} for number in range(10)]
    response = {"status": 200, "headers": {"date": f"{run}"}, "body": b"<p>" * 1000}
    asked: list[list[object]] = [["load"], ["before_fetch", {"url": "u", "headers": {}}],
                                 ["after_fetch", {"response": response}], ["filter_item", items]]  # fmt: skip
    vm.begin(run, "cycle", wire.pack([{"job": "x", "run": run}]))
    vm.start(run)
    for each in asked:
        assert vm.step(run, Form.PACKED, [wire.pack(each)])[0] == StepKind.OP
    assert vm.step(run, Form.PLAIN, [])[:2] == (StepKind.END, Ended.SUCCESS)


SMALL_SCRIPT = b"n = (n or 0) + 1 echo('n', tostring(n)) return #echo('n')"
HOOKS = b"""
function before_fetch(request, ctx) request.headers.x = '1' return request end
function after_fetch(result, ctx) ctx.shared.size = #result.response.body return result end
function filter_item(item, ctx) return item.fields.title ~= '' and item end
"""


@pytest.mark.parametrize(("source", "do_run"), [(SMALL_SCRIPT, script_run), (HOOKS, monitor_run)])
def test_a_vm_is_no_larger_after_many_runs_than_after_a_few(
    vm: VM, source: bytes, do_run: Callable[[VM, int], None]
) -> None:
    vm.compile(b"x.lua", source)

    def smallest(runs: range) -> int:
        sizes = []
        for run in runs:
            do_run(vm, run)
            sizes.append(vm.used)
        return min(sizes)

    sooner = smallest(range(1000, 1100))
    smallest(range(1100, 1400))

    assert smallest(range(1400, 1500)) - sooner < 400


def test_what_is_computed_works_in_callbacks_and_needs_room(vm: VM, callbacks: FakeCallbacks) -> None:
    source = """
      local text = ("x"):rep(1 << 20)
      print(("a b"):gsub("%a", crypto.md5))
      local kept, ok, problem = {}, true, nil
      while ok and #kept < 9 do
        ok, problem = pcall(crypto.base64_encode, text)
        kept[#kept + 1] = problem
      end
      kept = nil
      print(ok, problem)
    """
    assert run_to_end(vm, source)[0] is Ended.SUCCESS
    assert [line for _, line in callbacks.lines] == [
        b"0cc175b9c0f1b6a831c399e269772661 92eb5ffee6ae2fec3ad71c777531578f\t2",
        b"false\tnot enough memory",
    ]


@pytest.mark.parametrize(
    "source",
    [
        b"print = nil assert(print == nil)",
        b"echo = 1 echo = nil assert(echo == nil and print)",
        b"log = 5 assert(tostring(log) == '5')",
        b"string = nil assert(string == nil and ('a'):upper() == 'A')",
        b"setmetatable(_G, { __index = function(_, k) return k end }) assert(nobody == 'nobody' and print ~= 'print')",
        b"assert(getmetatable(_G) == nil)",
        b"function string.twice(s) return s .. s end assert(('a'):twice() == 'aa')",
        b"assert(('a'):upper() == 'A') function string.twice(s) return s .. s end assert(('a'):twice() == 'aa')",
        b"for _ in pairs(_G) do end function string.twice(s) return s .. s end assert(('a'):twice() == 'aa')",
        b"function string.twice(s) return s .. s end assert(next(_G) and ('a'):twice() == 'aa' and string.twice)",
        b"local s = string assert(next(_G) and s == string and log and cdp and bit32 and state and coroutine.wrap)",
        b"for i = 1, 100 do _G['n' .. i] = i end n1 = nil assert(n1 == nil and n2 == 2 and rawget(_G, 'log'))",
        b"tostring = nil for i = 1, 100 do local x = nobody end assert(tostring == nil and rawget(_G, 'log'))",
        b"assert(dump(_G):find('json_encode')) assert(deep_copy(_G).json_encode == json_encode)",
        b"assert(table.clone(_G).json_encode == json_encode)",
        b"assert(rawget(_G, 'echo') and rawget(_G, 'json_encode') and next(_G))",
        b"local s = {} for name in pairs(_G) do s[name] = true end assert(s.echo and s.print and s.table)",
        b"assert(not pcall(function() _G[nil] = 1 end)) assert(_G['a\\necho'] == nil and _G['_require'] == nil)",
        b"for _ in pairs(_G) do end assert(pairs(table.freeze({})) == next)",
        b"assert(pairs(table.freeze({})) == next)",
        b"rawequal, setmetatable, load = nil, nil, nil assert(tostring(1) == '1' and loadstring('return 1')() == 1)",
        b"local c = copy(math) assert(c.round(1.6) == 2 and c.nothing == nil)",
        b"local c = deep_copy({string}) assert(c[1].split and c[1].nothing == nil)",
        b"local n = 0 for _ in pairs(copy(coroutine)) do n = n + 1 end assert(n == 8)",
        b"assert(type(table.clone(state).lock) == 'function')",
        b"table.freeze(bit32) assert(bit32.band(3, 1) == 1 and bit32.nothing == nil)",
        b"assert(string.find(dump(state), 'lock = <function>', 1, true))",
        b"assert(next(state) and rawget(coroutine, 'wrap') and getmetatable(table) == nil)",
        b"local m = math for _ in next, math do end assert(rawget(m, 'round'))",
        b"setmetatable(string, nil) assert(('a,b'):split()[2] == 'b')",
        b"setmetatable(math, {__index = function() return 7 end}) assert(math.round(1.6) == 2 and math.nothing == 7)",
        b"setmetatable(state, {__call = print}) assert(state.lock)",
        b"assert(select(2, pcall(getmetatable)) == \"x.lua:1: bad argument #1 to 'getmetatable' (value expected)\")",
    ],
)
def test_globals_and_tables_that_come_when_they_are_asked_for_are_like_any_others(vm: VM, source: bytes) -> None:
    told = start(vm, source)

    assert told[:2] == (StepKind.END, Ended.SUCCESS), told


@pytest.mark.parametrize("short_of", ["values", "log", "engine", "access"])
def test_globals_that_there_was_no_memory_for_come_later_and_those_there_are_stay(
    bytecode: Bytecode, callbacks: FakeCallbacks, short_of: str
) -> None:
    vm = VM(Failing(bytecode, short_of), INIT, LIMIT, callbacks, main_count=1000)
    told = start(
        vm,
        b"function string.twice(s) return s .. s end local s, t = string, table "
        b"local ok, err = pcall(pairs, _G) assert(not ok and err == 'not enough memory') "
        b"for _ in pairs(_G) do end assert(('a'):twice() == 'aa' and string == s and table == t) "
        b"assert(log and print and tostring and dump and engine and next and cdp and state.lock)",
    )
    vm.close()

    assert told[:2] == (StepKind.END, Ended.SUCCESS)


@pytest.mark.parametrize("is_fleeting", [False, True])
def test_what_our_parts_see_has_nothing_in_it_that_reaches_outside(
    bytecode: Bytecode, callbacks: FakeCallbacks, is_fleeting: bool
) -> None:
    looking = (
        b"local names = {} for name in next, _ENV do names[#names + 1] = name end table.sort(names) "
        b"for name in next, os do names[#names + 1] = 'os.' .. name end table.sort(names) "
        b"local host, _, _, _ = ... host(table.concat(names, ' ')) return 1, 2, 3, 4"
    )
    vm = VM(bytecode, INIT, LIMIT, callbacks, main_count=1000, is_fleeting=is_fleeting)

    seen: list[bytes] = []
    vm._runtime.execute(looking, seen.append, mode="t")  # type: ignore[union-attr]
    vm.close()

    assert seen[0].decode().split() == [
        "_VERSION", "assert", "collectgarbage", "coroutine", "debug", "error", "getmetatable", "ipairs", "load", "math",
        "next", "os", "os.clock", "os.date", "os.difftime", "os.time", "pairs", "pcall", "rawequal", "rawget", "rawlen",
        "rawset", "select", "setmetatable", "string", "table", "tonumber", "tostring", "type", "utf8", "xpcall",
    ]  # fmt: skip


def test_a_script_that_asks_for_an_op_alone_gets_nothing_else(bytecode: Bytecode, callbacks: FakeCallbacks) -> None:
    lean = {name: bytecode[name] for name in ("lasting", "compile", "run", "globals", "runtime")}
    vm = VM(lean, INIT, LIMIT, callbacks, main_count=1000)

    assert start(vm, b"function helper() return echo('x') end return helper()")[0] == StepKind.OP
    vm.close()


@pytest.mark.parametrize(
    ("arguments", "elements"),
    [(b"{}", 1), (b"{1, 2, {a = 1, b = {}}}", 6), (b"'k', {x = 1}, nil", 4), (b"table.unpack(many)", 256)],
)
def test_what_is_passed_packed_is_counted(vm: VM, arguments: bytes, elements: int) -> None:
    source = b"many = {} for i = 1, 256 do many[i] = i end echo(" + arguments + b")"

    told, name, form, _, counted = start(vm, source)
    assert (told, name, form, counted) == (StepKind.OP, b"echo", Form.PACKED, elements)


def test_a_few_scalars_cross_one_by_one(vm: VM) -> None:
    told = start(vm, b"local t = {} for i = 1, 255 do t[i] = i end echo(table.unpack(t))")

    assert told == (StepKind.OP, b"echo", Form.PLAIN, *range(1, 256))


def test_what_a_vm_uses_is_counted_until_it_is_gone(vm: VM, monkeypatch: pytest.MonkeyPatch) -> None:
    start(vm, b"kept = ('x'):rep(2000000)")
    before, control, seen = vm.used, vm._control, []

    def watched(what: bytes) -> object:
        seen.append(vm.used)
        return control(what)

    monkeypatch.setattr(vm, "_control", watched)
    vm.close()
    vm.close()

    assert seen == [before]
    assert before > 2_000_000
    assert vm.used == 0


@pytest.mark.parametrize(
    "keep",
    [
        b"kept = big",
        b"log.kept = big",
        b"string.kept, math.kept, state.kept = big, big, big",
        b"kept = coroutine.wrap(function() coroutine.yield(big) end) kept()",
        b"kept = table.freeze({big})",
        b"defer(function() kept = big end)",
        b"error({big})",
    ],
)
def test_whatever_a_script_keeps_goes_before_its_vm_is_closed(
    bytecode: Bytecode, callbacks: FakeCallbacks, monkeypatch: pytest.MonkeyPatch, keep: bytes
) -> None:
    vm = VM(bytecode, INIT, LIMIT, callbacks, main_count=1000)
    start(vm, b"local big = ('x'):rep(2000000) " + keep)
    control, left = vm._control, []

    def watched(what: bytes) -> None:
        control(what)
        left.append(vm.used)

    monkeypatch.setattr(vm, "_control", watched)
    vm.close()

    assert len(left) == 1
    assert left[0] < 1_000_000


@pytest.mark.parametrize("procedure", Procedure)
def test_a_vm_knows_each_procedure(vm: VM, procedure: Procedure) -> None:
    assert vm.begin(1, procedure, wire.pack([{}])).startswith(b"0x")


@pytest.mark.parametrize("name", ["", "nonsense", "execute", "find", "procedures"])
def test_a_vm_knows_no_other(vm: VM, name: str) -> None:
    with pytest.raises(Exception, match="there is no procedure"):
        vm.begin(1, name, b"\x90")
