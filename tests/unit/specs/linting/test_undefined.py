from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.specs.linting.lua_file import LuaFile
from spyweb.specs.linting.names import ABSENT, SERVER
from spyweb.specs.linting.undefined import FEW, find_absent_modules, find_undefined
from tests.fakes.repository import ROOT


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
        ("local r = htp_get('x')", ['1: nobody defines htp_get; did you mean "http_get"?']),
        ("-- a\n\nlogg('x')\nlogg('y')", ['3: nobody defines logg; did you mean "log"?']),
        ("return price_of(1)", ["1: nobody defines price_of"]),
        ("f = io.open('x')", ["1: scripts have no io: fs_read, fs_append and fs_overwrite are for files"]),
        ("os.execute('ls')", ["1: scripts have no os.execute: use exec.run"]),
        ("x = os.getenv('A')", ['1: scripts have no os.getenv: env_get("NAME") reads the variable SPYWEB_NAME']),
        ("x = string.splt('a')", ['1: nobody defines string.splt; did you mean "string.split"?']),
        ("x = 'a' .. naem .. [[b]]", ["1: nobody defines naem"]),
        ("if stat.get('x') then end", ['1: nobody defines stat; did you mean "state"?']),
        ("function jobb:run() end", ["1: nobody defines jobb"]),
        (
            "for docker in pairs({}) do log(docker) end\ndocker.run('x')",
            [f"2: nobody defines docker; {reason_of('docker')}"],
        ),
        ("local function on(event) log(event) end\nevent.on()", [f"2: nobody defines event; {reason_of('event')}"]),
        ("t = { f = function(tme) return { tme } end } log(tme)", ["1: nobody defines tme"]),
        ("for secrets in secrets.all() do log(secrets) end", [f"1: nobody defines secrets; {reason_of('secrets')}"]),
        ("x = [[\n\n]] y()", ["3: nobody defines y"]),
        ("--[[ y() ]] z()\n", ["1: nobody defines z"]),
        (
            "\ngoroutine.spawn(f) f = 1",
            [
                "2: nobody defines goroutine; sloth-runner's goroutine is not part of this version: "
                "use parallel(f, g) or parallel_map(list, f, limit)"
            ],
        ),
        ("sloth.log('x')", ["1: nobody defines sloth; sloth-runner's sloth is not part of this version"]),
        (
            "event.dispatch('x') import 'y'",
            [f"1: nobody defines {name}; {reason_of(name)}" for name in ("event", "import")],
        ),
        ("log.success('x')", ["1: scripts have no log.success: log.info"]),
        (
            "pcall(htp_get, url_of())",
            ['1: nobody defines htp_get; did you mean "http_get"?', "1: nobody defines url_of"],
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
    assert told("require('lib') misspelt()", lib="function other() end") == ["1: nobody defines misspelt"]
    assert told("require('lib') unknown()", lib="setmetatable(_G, {})") == []
    assert told("require('absent') unknown()") == ["1: nobody defines unknown"]


def test_modules_are_read_only_where_a_name_is_open() -> None:
    def refuse(name: bytes) -> bytes:
        raise AssertionError(name)

    assert find_undefined(LuaFile(b"require('lib') log('x')"), read=refuse) == []


def test_a_server_has_its_tables_of_handlers() -> None:
    source = "function get:users() end public.post.x = 1"
    assert told(source, known=SERVER) == []
    assert told("function gett:users() end", known=SERVER) == ['1: nobody defines gett; did you mean "get"?']


def test_no_more_than_a_few_are_told() -> None:
    assert len(told("\n".join(f"f{n}()" for n in range(500)))) == FEW


def scripts() -> Mapping[str, bytes]:
    """The samples, and the Lua of the template and of the pages that is whole."""
    files = [*ROOT.glob("jobs/**/*.lua"), *ROOT.glob("spyweb/cli/template/*.lua")]
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files if path.name != "tests.lua"}


@pytest.mark.parametrize("path", scripts())
def test_the_samples_use_no_name_that_nobody_defines(path: str) -> None:
    assert told(scripts()[path]) == []


@given(st.binary() | st.text(alphabet="af=.:,()[]{}\"'\\-\n <>~").map(str.encode))
def test_any_text_is_looked_at(source: bytes) -> None:
    told(source)
