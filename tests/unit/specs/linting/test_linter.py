from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spyweb.errors import Problem
from spyweb.ops.sources import Sources
from spyweb.specs.block import Block, read_block
from spyweb.specs.linting.linter import (
    FEW,
    Linter,
    doubts_of_hooks,
    doubts_of_script,
    doubts_of_server,
    find_absent_modules,
    find_idle,
    find_own_call,
    find_undefined,
    read_module,
)
from spyweb.specs.linting.lua_file import LuaFile
from spyweb.specs.linting.names import ABSENT
from tests.fakes.repository import ROOT


def nothing(_: bytes) -> None:
    """No module is there."""


def of_script(source: str) -> list[str]:
    block = read_block(source.encode(), "jobs/a.lua")
    assert isinstance(block, Block)
    found = list(doubts_of_script(("jobs/a.lua", source.encode()), block, nothing))
    assert all(problem.is_warning for problem in found)
    return [str(problem).removeprefix("jobs/a.lua:") for problem in found]


@pytest.mark.parametrize(
    "source",
    ['--\n-- every = "1h"\nlog(1)', "---\n--- Sums up.\nlog(1)", "---\nname = 1", "log(1)\n---\nevery = 1", "-- job\n"],
)
def test_a_comment_that_is_no_fence_is_left_alone(source: str) -> None:
    assert not [problem for problem in of_script(source) if "block" in problem]


def of_hooks(**files: str) -> list[str]:
    named = [(f"{name}.lua", source.encode()) for name, source in files.items()]
    return [str(problem) for problem in doubts_of_hooks(named, nothing)]


TASKS_AND_RUN = "the file declares tasks and defines run: spyweb calls run, and no task runs"
BLOCK = '-- /// job\n-- every = "30s"\n-- ///\n'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("log(1)\n" + BLOCK, "2: this settings block is not at the top of the file and has no effect"),
        ("--- /// job\nlog(1)", '1: this begins no block of settings; expected "-- /// job"'),
        ("\n-- // job\nlog(1)", '2: this begins no block of settings; expected "-- /// job"'),
        ('--- job\n-- name = "x"\n---\nlog(1)', '1: this begins no block of settings; expected "-- /// job"'),
        ('-- Hi\n---\nevery = "30s"\n---\nlog(1)', '2: this begins no block of settings; expected "-- /// job"'),
        (
            '-- === job ===\n-- === job\n-- cron = "@daily"\n',
            '2: this begins no block of settings; expected "-- /// job"',
        ),
        ("log(1)\n--  //// Job", '2: this begins no block of settings; expected "-- /// job"'),
        ("function run() end run()", "1: the file defines run and calls it; spyweb calls it too"),
        ("cdp.open()", "1: cdp.open is not part of this version"),
        ("require('import')", "1: sloth-runner's import is not part of this version: use require"),
        ("task('a'):command(print)\nfunction run(ctx) end", f"2: {TASKS_AND_RUN}"),
        ("run = function() end workflow.define('w')", f"1: {TASKS_AND_RUN}"),
        ("ModernDSLs = {}\nfunction run() end", f"2: {TASKS_AND_RUN}"),
        ("task({\nname = 'a',\nrun = print\n})\nrun = print", f"5: {TASKS_AND_RUN}"),
        ("log(1)\nworkflow.defin('w')", '2: undefined name workflow.defin; did you mean "workflow.define"?'),
        ("htp_get('x')", '1: undefined name htp_get; did you mean "http_get"?'),
        ("log(1) function on_sucess() end", '1: on_sucess is never called; did you mean "on_success"?'),
        ("log(1)\nRun = function() end", '2: Run is never called; did you mean "run"?'),
        (
            "log(1) function before_fetch() end",
            "1: before_fetch is a hook of monitors: of a script spyweb calls run, on_state, on_success, on_error, "
            "on_finally, on_down, on_up",
        ),
    ],
)
def test_what_would_be_ignored_in_a_script_is_told(source: str, expected: str) -> None:
    assert of_script(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        BLOCK + "log(1)",
        "log(1) -- // jobs of today",
        "function on_errors() end on_errors()",
        "function run() end function on_error() end function on_finally() end function on_state() end",
        "local function on_sucess() end log(on_sucess)",
        "function before_fetch() end before_fetch()",
        "function tidy() end log(tidy())",
        "task({\nname = 'a',\nrun = function()\nend\n})",
    ],
)
def test_what_is_in_order_is_not(source: str) -> None:
    assert of_script(source) == []


def test_a_misspelt_hook_is_told_with_the_nearest_one() -> None:
    assert of_hooks(hooks="function before_fech(r) return r end", defer="\non_finsihed = function() end") == [
        'hooks.lua:1: no hook is named before_fech; did you mean "before_fetch"?',
        'defer.lua:2: no hook is named on_finsihed; did you mean "on_finished"?',
    ]
    assert (
        of_hooks(hooks="function after_extracted(i) return i end", defer="function on_success() after_extracted() end")
        == []
    )


def test_a_monitor_s_files_share_their_names() -> None:
    assert of_hooks(hooks="function tidy() end", defer="function on_success() tidy() end") == []
    assert of_hooks(hooks="function filter_item(i) return tdy(i) end") == ["hooks.lua:1: undefined name tdy"]


def test_a_block_in_a_monitor_s_file_has_no_effect() -> None:
    assert "in config.toml" in of_hooks(hooks=BLOCK)[0]


def test_a_server_may_use_the_tables_of_its_handlers() -> None:
    source = b"function get:users() return usr end"
    assert [str(each) for each in doubts_of_server([("s.lua", source)], nothing)] == ["s.lua:1: undefined name usr"]


def test_a_module_is_found_as_require_finds_it(tmp_path: Path) -> None:
    (tmp_path / "jobs/a").mkdir(parents=True)
    (tmp_path / "jobs/a/own.lua").write_text("own = 1")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/init.lua").write_text("lib = 1")
    modules = Sources(tmp_path)

    assert read_module(modules, "jobs/a", b"own") == b"own = 1"
    assert read_module(modules, "jobs/a", b"lib") == b"lib = 1"
    assert read_module(modules, "jobs/a", b"absent") is None
    assert read_module(modules, "jobs/a", b"../secret") is None


def test_files_that_have_not_changed_are_not_looked_at_again() -> None:
    linter, looked = Linter(), []

    def look(digest: bytes) -> tuple[Problem, ...]:
        def doubts(_: object) -> list[Problem]:
            looked.append(digest)
            return [Problem("a.lua", 1, None, digest.decode())]

        return linter.look("a.lua", digest, doubts, nothing)

    for digest in (b"1", b"1", b"2"):
        linter.begin()
        assert [problem.reason for problem in look(digest)] == [digest.decode()]
    assert looked == [b"1", b"2"]
    linter.begin()
    linter.begin()
    look(b"2")
    assert looked == [b"1", b"2", b"2"]


def test_what_depends_on_a_module_is_looked_for_each_time() -> None:
    linter, modules = Linter(), {b"lib": b""}
    file = ("a.lua", b"require('lib') tidy()")

    def look() -> int:
        linter.begin()
        return len(linter.look("a.lua", b"1", lambda read: doubts_of_hooks([file], read), modules.get))

    assert look() == 1
    modules[b"lib"] = b"tidy = 1"
    assert look() == 0


def test_a_deferred_look_keeps_nobody_waiting() -> None:
    linter = Linter(deferred=True)

    def look(source: bytes) -> tuple[Problem, ...]:
        linter.begin()
        return linter.look("a.lua", source, lambda read: doubts_of_hooks([("a.lua", source)], read), nothing)

    assert look(b"tdy()") == ()
    assert [str(each) for each in linter.finish()["a.lua"]] == ["a.lua:1: undefined name tdy"]
    assert [str(each) for each in look(b"tdy()")] == ["a.lua:1: undefined name tdy"]
    assert linter.finish() == {}


def reason_of(name: str) -> str:
    return f"sloth-runner's {name} is not part of this version: {ABSENT[name]}"


def required(source: str, **modules: bytes) -> list[str]:
    found = find_absent_modules(LuaFile(source.encode()), read=lambda name: modules.get(name.decode()))
    return [f"{line}: {reason}" for line, reason in found]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("local goroutine = require('goroutine')\ngoroutine.spawn(f)", ["1: goroutine"]),
        ('-- require("pkg")\n\nlocal git = require "git" local d = require(\'docker\')', ["3: git", "3: docker"]),
        ("[[\n]] require('pkg')\nrequire('pkg')", ["2: pkg"]),
        ("log('require(\"pkg\")') -- require('git')", []),
        ("pcall(require, 'docker') require('lib.docker') x.require('docker') require(docker)", []),
        ("require('exec') require('log') require('nothing')", []),
    ],
)
def test_a_module_of_sloth_runner_that_is_required_is_told(source: str, names: list[str]) -> None:
    assert required(source) == [f"{line}: {reason_of(name)}" for line, name in (each.split(": ") for each in names)]


def test_a_file_of_the_project_may_have_such_a_name() -> None:
    assert required("require('docker') require('git')", docker=b"return {}") == [f"1: {reason_of('git')}"]


def told(source: str | bytes, *others: str, known: frozenset[bytes] = frozenset(), **modules: str) -> list[str]:
    text = source if isinstance(source, bytes) else source.encode()
    found = find_undefined(
        LuaFile(text),
        [LuaFile(other.encode()) for other in others],
        read=lambda name: modules[name.decode()].encode() if name.decode() in modules else None,
        known=known,
    )
    return [f"{line}: {reason}" for line, reason in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("local r = htp_get('x')", ['1: undefined name htp_get; did you mean "http_get"?']),
        ("-- a\n\nlogg('x')\nlogg('y')", ['3: undefined name logg; did you mean "log"?']),
        ("return price_of(1)", ["1: undefined name price_of"]),
        ("f = io.open('x')", ["1: scripts have no io: fs_read, fs_append and fs_overwrite are for files"]),
        ("os.execute('ls')", ["1: scripts have no os.execute: use exec.run"]),
        ("x = os.getenv('A')", ['1: scripts have no os.getenv: env_get("NAME") reads the variable SPYWEB_NAME']),
        ("x = string.splt('a')", ['1: undefined name string.splt; did you mean "string.split"?']),
        ("x = 'a' .. naem .. [[b]]", ["1: undefined name naem"]),
        ("if stat.get('x') then end", ['1: undefined name stat; did you mean "state"?']),
        ("function jobb:run() end", ["1: undefined name jobb"]),
        (
            "for docker in pairs({}) do log(docker) end\ndocker.run('x')",
            [f"2: undefined name docker; {reason_of('docker')}"],
        ),
        ("local function on(event) log(event) end\nevent.on()", [f"2: undefined name event; {reason_of('event')}"]),
        ("t = { f = function(tme) return { tme } end } log(tme)", ["1: undefined name tme"]),
        ("for secrets in secrets.all() do log(secrets) end", [f"1: undefined name secrets; {reason_of('secrets')}"]),
        ("x = [[\n\n]] y()", ["3: undefined name y"]),
        ("--[[ y() ]] z()\n", ["1: undefined name z"]),
        (
            "\ngoroutine.spawn(f) f = 1",
            [
                "2: undefined name goroutine; sloth-runner's goroutine is not part of this version: "
                "use parallel(f, g) or parallel_map(list, f, limit)"
            ],
        ),
        ("sloth.log('x')", ["1: undefined name sloth; sloth-runner's sloth is not part of this version"]),
        (
            "event.dispatch('x') import 'y'",
            [f"1: undefined name {name}; {reason_of(name)}" for name in ("event", "import")],
        ),
        ("log.success('x')", ["1: scripts have no log.success: log.info"]),
        ('cdp.open("x")', ["1: cdp.open is not part of this version"]),
        ("log(1)\ncdp 'ls'\ncdp('ls')", ["2: cdp is not part of this version"]),
        ("return cdp:read()", ["1: cdp.read is not part of this version"]),
        (
            "pcall(htp_get, url_of())",
            ['1: undefined name htp_get; did you mean "http_get"?', "1: undefined name url_of"],
        ),
    ],
)
def test_a_name_that_nobody_defines_is_told_with_its_line(source: str, expected: list[str]) -> None:
    assert told(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "local x <const>, y = 1, 2 log(x + y)",
        "for i, v in ipairs({}) do log(i, v) end for n = 1, 2 do log(n) end",
        "function f(a, b, ...) return a(b, ...) end f()",
        "local function g() return g end g()",
        "local t = function(x) return x end t(1)",
        "count = (count or 0) + 1",
        "a, b = 1, 2 log(a, b)",
        "t = {} t.x = a b, t.y = 1, 2 log(b) a = 1",
        "if plugin then plugin.start() end",
        "if not plugin then return end plugin()",
        "local p = plugin or {} plugin()",
        "if type(plugin) == 'function' then plugin() end",
        "if plugin ~= nil then plugin() end",
        "goto done ::done::",
        "t = { naem = 1 } log(t.naem, t:naem(), t . naem)",
        "task('a')\n  :command()\n  :build()",
        "log('htp_get') log[[htp_get]] -- htp_get()",
        "function string.trim(s) return s end log(string.trim(' '))",
        "math.half = function(x) return x / 2 end math.half(1)",
        "local os = require('shim') os.execute()",
        "if os.execute then os.execute() end",
        "_G.plugin = 1 plugin()",
        "_G['plug' .. 'in'] = 1 plugin()",
        "setmetatable(_G, {}) plugin()",
        "load('plugin = 1')() plugin()",
        "for _, name in ipairs(names or {}) do require(name) end plugin()",
        "pcall(require, 'plugin') plugin()",
        "function t:m() return self.x end local t = {}",
        "local t = {} function t:m() return self end",
        "while f(function() for i = 1, 2 do log(i) end end) do log('x') end f = 1",
        "x = 0x1F + 1e5 + 3.e2",
        "return _VERSION, _ENV.x",
        "if docker then docker.ps() end local who = user or 'anon' print(who, user)",
        "service = { start = print } service.start() function import(x) end import(1)",
        "local function on(event) return event.name end for _, user in ipairs({}) do print(user.name, on) end",
        "Values = Values print(Values.a)",
        "local task = {} task.go() function cdp(x) end cdp('ls') task:cdp('ls')",
        "for _, cdp in ipairs(cdp or {}) do cdp.close() end",
    ],
)
def test_whatever_may_define_a_name_or_asks_for_it_keeps_it_from_being_told(source: str) -> None:
    assert told(source) == []


def test_names_come_from_the_files_of_the_same_vm_and_from_modules_of_modules() -> None:
    assert (
        told(
            "helper() shared_one() deep_one()",
            "function helper() end require 'lib'",
            lib="require('deep') shared_one = 1",
            deep="function deep_one() end",
        )
        == []
    )
    assert told("require('lib') misspelt()", lib="function other() end") == ["1: undefined name misspelt"]
    assert told("require('lib') unknown()", lib="setmetatable(_G, {})") == []
    assert told("require('absent') unknown()") == ["1: undefined name unknown"]


def test_modules_are_read_only_where_a_name_is_open() -> None:
    def refuse(name: bytes) -> bytes:
        raise AssertionError(name)

    assert find_undefined(LuaFile(b"require('lib') log('x')"), read=refuse) == []


def test_no_more_than_a_few_are_told() -> None:
    assert len(told("\n".join(f"f{n}()" for n in range(500)))) == FEW


def scripts() -> Mapping[str, bytes]:
    """The samples, and the Lua of the template and of the pages that is whole."""
    files = [*ROOT.glob("jobs/**/*.lua"), *ROOT.glob("spyweb/cli/template/*.lua")]
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files if path.name != "tests.lua"}


@pytest.mark.parametrize("path", scripts())
def test_the_samples_use_no_name_that_nobody_defines(path: str) -> None:
    assert told(scripts()[path]) == []


WORDS = [
    "cdp", "task(", '"a"', "):depends_on", "function run() end", "run(", "if a then", "end", "{}", "for", "local", "[[",
]  # fmt: skip


@given(
    st.binary()
    | st.text(alphabet="af=.:,()[]{}\"'\\-\n <>~").map(str.encode)
    | st.lists(st.sampled_from([*WORDS, " ", "\n", ".", "=", ","])).map("".join).map(str.encode)
)
@example(b"function run() end run(" * 3 + b"[[" * 50_000)
@example(b"run( run( '" * 20_000)
def test_any_text_is_looked_at(source: bytes) -> None:
    told(source)
    find_own_call(LuaFile(source))
    find_idle(LuaFile(source))


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("function run(ctx)\nend\nrun({})\n", 3),
        ("function run(ctx)\nend\nreturn run(...)", 3),
        ("run = function() end\nrun()", 2),
        ("run()\nfunction run() end\nfunction again() run() end", 1),
        ("function run()\n if x then for i=1,2 do f() end elseif y then g() end\nend\n\nrun()", 5),
        ("function run() repeat x() until y end\nprint(run())", 2),
        ("function run() end run{}", 1),
        ("function run() end run 'x'", 1),
        ("function run() end\nlocal s = [[ end ]]\nrun()", 3),
    ],
)
def test_a_file_that_defines_and_calls_run_is_found_with_the_line(source: str, line: int) -> None:
    assert find_own_call(LuaFile(source.encode())) == line


@pytest.mark.parametrize(
    "source",
    [
        "function run() end",
        "run()",
        "function run() run() end",
        "local function run() end\nrun()",
        "function run() end\nother.run()",
        "function run() end\nother:run()",
        "function run() end\n-- run()",
        "function run() end\n--[[ run() ]]",
        "function run() end\nprint('run()')",
        "function run() end\nlocal s = [==[\nrun()\n]==]",
        "function run() end\nlocal function g() run() end",
        "function run() end\nrunner()",
        "function run() end\npcall(run)",
        "function M.run() end\nrun()",
    ],
)
def test_anything_else_gives_no_warning(source: str) -> None:
    assert find_own_call(LuaFile(source.encode())) is None


NOTHING = "a run of this file does nothing: it only defines"


def told_idle(source: str) -> str | None:
    line, reason = find_idle(LuaFile(source.encode()))
    return f"{line}: {reason}" if line else None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("function main()\n  log('x')\nend", f"1: {NOTHING} main; spyweb calls the global function run(ctx)"),
        ("\nlocal ModernDSLs = { a = { run = function() log(1) end } }", f"2: {NOTHING} ModernDSLs; spyweb calls the"),
        ("a, b, c, d = {}, {}, {}, {} e = {}", f"1: {NOTHING} d, e;"),
        ("a = {} b = {} c = {} d = {}", f"1: {NOTHING} a, b, c, …; spyweb calls"),
        (
            "\nreturn { name = 'x', execute = function(this) end }",
            "2: a run of this file does nothing: it returns a table",
        ),
        (
            "local M = {}\nreturn {\n  go = function() return { 1 } end,\n};\n",
            "2: a run of this file does nothing: it r",
        ),
        (
            "local log = require('log')\nlocal M = {}\nfunction M.execute() log.info('x') end\nreturn M",
            "4: a run of this",
        ),
        ("local function run() log('x') end", f"1: {NOTHING} run; spyweb calls the global function run, and this one"),
        ("local t = {} t.x = function() f() end", f"1: {NOTHING} t;"),
        ("if true then x = {} end", f"1: {NOTHING} x;"),
    ],
)
def test_a_file_that_only_defines_things_is_told(source: str, expected: str) -> None:
    assert (told_idle(source) or "").startswith(expected)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "-- only a comment",
        "x = 1",
        "visits = (visits or 0) + 1",
        "function run() end",
        "run = function() end",
        "function on_state() end",
        "function on_success() end x = {}",
        "local function f() end f()",
        "return {}",
        "return { at = os.time() }",
        "function f() end\nreturn false",
        "task('a'):command(print)\nreturn { f = function() end }",
        "function run() end\nreturn { f = function() end }",
        "if x then\nreturn { f = function() end }\nend\nlog('y')",
        "log'x' t = {}",
        "log{} t = {}",
        "log[[x]] t = {}",
        "(function() end)()",
        "for i = 1, 3 do log(i) end t = {}",
        "repeat t = {} until done()",
        "t = setmetatable({}, {})",
        "t = {} t:start()",
        "t = { start() }",
        "_G.run = function() end",
        "local run function run() end run()",
    ],
)
def test_a_file_that_does_something_is_not(source: str) -> None:
    assert told_idle(source) is None
