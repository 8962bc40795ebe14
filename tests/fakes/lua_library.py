"""A bare Lua 5.4 with our library in it and no prelude: ops are answered by the test, log lines are kept.

The library's files are compiled, stripped and loaded as a worker does it, so that error levels are what scripts see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from spyweb.errors import OpError
from spyweb.lua import wire
from spyweb.lua.worker.crypto import compute
from spyweb.lua.worker.vm import VM, Function, LuaError, compile_lua_files, init_of, new_runtime
from spyweb.ops import catalog
from tests.fakes.repository import ROOT
from tests.fakes.vm import FakeCallbacks

FOLDERS = [ROOT / "spyweb/lua/worker/runtime", ROOT / "spyweb/lua/worker/library"]

Answer = Callable[..., list[object]]

# Stands in for the prelude: globals of their own for the script, the raw functions, and a `runtime` whose ops call out.
_PRELUDE = rb"""
local read, emit, answer, compute, ops, facts, variables = ...
local unpack, getinfo, dump = table.unpack, debug.getinfo, string.dump
local raw, env, string_meta = {}, { coroutine = {} }, getmetatable("")
for name, value in pairs(_G) do raw[name] = value end
for _, name in ipairs { "assert", "error", "ipairs", "pairs", "pcall", "rawequal", "select", "tonumber", "type",
  "xpcall", "collectgarbage" } do env[name] = raw[name] end
for name, f in pairs(coroutine) do env.coroutine[name] = f end
env._G = env
function env.setmetatable(target, meta)
  if meta and raw.rawget(meta, "__gc") ~= nil then error("__gc is not available", 2) end
  return raw.setmetatable(target, meta)
end
function env.load(source, name) return raw.load(source, name, "t", env) end

local runtime = { env = env, raw = raw, getinfo = getinfo, tasks = false, emit = emit, ops = ops, facts = facts }
runtime.variables = variables
runtime.internals = { now = { run = {} }, runs = {}, set_type_metatable = debug.setmetatable }
function runtime.internals.host(what, ...)
  if what == 8 then return os.time() end
  return compute(...)
end
function runtime.internals.fail(message) error(message, 3) end
runtime.load, runtime.pcall, runtime.setmetatable = env.load, env.pcall, env.setmetatable
function runtime.clock() return 12.5 end
function runtime.seed() return 7 end
function runtime.compile(source, name) return raw.load(source, name, "t", env) end
function runtime.part(name)
  return raw.load(dump(raw.assert(raw.load(read(name), "=" .. name)), true), "=?", "b", raw)
end

local parts = {}
function runtime.use(name)
  parts[name] = parts[name] or runtime.part(name)(runtime, runtime.internals)
  return parts[name]
end

function runtime.lazy(file, name)
  return function(...) return runtime.use(file)[name](...) end
end
runtime.bad_argument = runtime.lazy("failures", "bad_argument")
function runtime.op(name)
  return function(...) return runtime.call(name, ...) end
end
function runtime.complete() end

local here = getinfo(1, "S").source
local function script_level()
  for level = 3, 60 do
    local info = getinfo(level, "S")
    if not info then return 0 end
    if info.what ~= "C" and info.source ~= "=?" and info.source ~= here then return level - 1 end
  end
  return 0
end

function runtime.call(name, ...)
  local failure, packed = answer(name, (runtime.encode(...)))
  if failure then raw.error(failure, script_level()) end
  local values, count = runtime.decode(packed)
  return unpack(values, 1, count)
end

for name in raw.pairs(package.loaded) do package.loaded[name] = nil end
runtime.decode = runtime.part("codec")(runtime)
for name, value in raw.pairs(runtime.use("values")) do runtime[name] = value end
runtime.encode = runtime.part("encode")(runtime)
local function add_globals(file, names)
  for name in raw.string.gmatch(names, "%S+") do env[name] = runtime.use(file)[name] end
end
local function add_calls(file, names)
  for name in raw.string.gmatch(names, "%S+") do env[name] = runtime.lazy(file, name) end
end
for name in raw.string.gmatch(ops, "[^\n.]+%f[\n]") do
  env[name] = runtime.op(name)
  if raw.string.find(name, "^http_") then
    env[name] = function(...) return runtime.use("headers").with_headers(runtime.call(name, ...)) end
  end
end
add_globals("standard", "bit32 loadstring math os state string table unpack utf8")
add_globals("values", "JSON_EMPTY_ARRAY tostring")
add_globals("log", "log print")
add_globals("crypto", "crypto")
add_globals("given", "values Values")
add_globals("data", "data")
add_globals("template", "template")
add_globals("file", "file")
add_calls("copy", "copy deep_copy")
add_calls("dump", "dump")
add_calls("json", "json_decode json_encode")
add_calls("modules", "require")
add_globals("engine", "engine env_get cdp cmd exec workflow")
add_calls("tasks", "task")
add_globals("access", "getmetatable next rawget rawlen rawset")
string_meta.__index = env.string

local function results(ok, ...)
  if ok then return true, (runtime.encode(...)) end
  return false, raw.tostring((...))
end
local function run(source, ...)
  local chunk, problem = raw.load(source, "@script.lua", "t", env)
  if not chunk then return false, problem end
  return results(raw.pcall(chunk, ...))
end
local function run_packed(source, packed)
  local values, count = runtime.decode(packed)
  return run(source, unpack(values, 1, count))
end
return run_packed
"""


class ScriptFailed(Exception):
    """Raised when the script raised, with the text of its error."""


class LuaLibrary:
    """Holds one VM.  `run` gives what a script returned, strings as bytes; `lines` holds what it logged."""

    def __init__(
        self,
        *,
        ops: Mapping[str, Answer] | None = None,
        env: Mapping[str, str] | None = None,
        rules: Sequence[object] = (),  # of env_get
        memory_limit: int = 1 << 30,
    ) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.parts: list[str] = []
        self._runtime = new_runtime(memory_limit)
        self._ops = dict(ops or {})
        told = init_of({"ops": list(self._ops), "engine": {"os": "linux", "lua_version": "lua54"}})
        variables = wire.pack([{"env": dict(env or {}), "rules": list(rules)}]) if env or rules else b""
        told = told._replace(variables=variables)
        self._run: Function = self._runtime.execute(_PRELUDE, self._read, self._emit, self._answer, compute, *told)

    def run(self, script: str | bytes, *arguments: object) -> list[object]:
        return self.decoded(wire.pack(arguments), script)

    def value(self, expression: str | bytes, *arguments: object) -> object:
        """Return the first value of an expression; `...` are the arguments."""
        source = expression.encode() if isinstance(expression, str) else expression
        return self.run(b"return (" + source + b")", *arguments)[0]

    def error(self, script: str | bytes, *arguments: object) -> str:
        """Return the error that a script must raise."""
        try:
            result = self.run(script, *arguments)
        except ScriptFailed as error:
            return str(error)
        raise AssertionError(f"it returned {result}")

    def decode(self, packed: bytes) -> None:
        """Call the codec alone, on bytes that may be anything."""
        self.decoded(packed, "")

    def decoded(self, packed: bytes, script: str | bytes) -> list[object]:
        """Return what the script makes of the packed list, which it gets as `...`."""
        try:
            ok, result = self._run(script.encode() if isinstance(script, str) else script, packed)
        except LuaError as error:
            raise ScriptFailed(str(error)) from error
        if not ok:
            raise ScriptFailed(result.decode("utf-8", "replace"))
        return wire.unpack(result)

    def used_bytes(self) -> int:
        self._runtime.execute("collectgarbage() collectgarbage()")
        return self._runtime.get_memory_used(total=True)

    def _read(self, name: bytes) -> bytes:
        self.parts.append(name.decode())
        return next(path for folder in FOLDERS if (path := folder / f"{name.decode()}.lua").exists()).read_bytes()

    def _emit(self, level: bytes, text: bytes) -> int:
        self.lines.append((level.decode(), text))
        return 0

    def _answer(self, name: bytes, packed: bytes) -> tuple[bytes | None, bytes]:
        try:
            return None, wire.pack(self._ops[name.decode()](*wire.unpack(packed)))
        except OpError as error:
            return str(error).encode(), b""


LIST_GLOBALS = b"""
local names = {}
for name, value in pairs(_G) do
  names[#names + 1] = name
  if type(value) == "table" and value ~= _G then
    for key in pairs(value) do
      if type(key) == "string" then names[#names + 1] = name .. "." .. key end
    end
  end
end
for _, level in ipairs { "debug", "info", "warn", "error" } do
  if log[level] then names[#names + 1] = "log." .. level end  -- of a function, which pairs does not show
end
log(table.concat(names, " "))
"""


@cache
def globals_of_a_vm() -> frozenset[str]:
    callbacks = FakeCallbacks()
    engine = dict.fromkeys(("os", "arch", "headless", "version", "lua_version", "storage", "server_url"), "x")
    init = {"ops": sorted(catalog.CATALOGUE), "engine": engine, "env": {}}
    vm = VM(compile_lua_files(), init_of(init), 64 << 20, callbacks, main_count=0)
    assert vm.compile(b"@names.lua", LIST_GLOBALS) is None
    vm.begin(1, "run", wire.pack([{}, True]))
    vm.start(1)
    ((_, names),) = callbacks.lines
    return frozenset(names.decode().split())
