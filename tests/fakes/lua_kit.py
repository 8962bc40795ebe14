"""A bare Lua 5.4 with our library in it and no prelude: ops are answered by the test, log lines are kept.

The library's files are compiled, stripped and loaded as a worker does it, so that error levels are what scripts see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from spyweb.errors import OpError
from spyweb.lua import wire
from spyweb.lua.worker.values import Function
from spyweb.lua.worker.vm import LuaError, init_of, new_runtime

LUA_FILES = Path(__file__).parents[2] / "spyweb" / "lua" / "worker"

Answer = Callable[..., list[object]]

# Stands in for the prelude: globals of their own for the script, the raw functions, and a kit whose ops call out.
_PRELUDE = rb"""
local read, emit, answer, ops, facts = ...
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

local kit = { env = env, raw = raw, emit = emit, ops = ops, facts = facts }
kit.border = { now = { run = {} }, runs = {}, set_type_metatable = debug.setmetatable }
function kit.border.fail(message) error(message, 3) end
kit.load, kit.pcall, kit.setmetatable = env.load, env.pcall, env.setmetatable
function kit.clock() return 12.5 end
function kit.seed() return 7 end
function kit.compile(source, name) return raw.load(source, name, "t", env) end
function kit.part(name)
  return raw.load(dump(raw.assert(raw.load(read(name), "=" .. name)), true), "=?", "b", raw)
end

local parts = {}
function kit.use(name)
  parts[name] = parts[name] or kit.part(name)(kit, kit.border)
  return parts[name]
end

function kit.later(file, name)
  return function(...) return kit.use(file)[name](...) end
end
kit.bad_argument = kit.later("failures", "bad_argument")
function kit.op(name)
  return function(...) return kit.call(name, ...) end
end
function kit.complete() end

local function script_level()
  for level = 3, 60 do
    local info = getinfo(level, "S")
    if not info then return 0 end
    if info.what ~= "C" and info.source ~= "=?" then return level - 1 end
  end
  return 0
end

function kit.call(name, ...)
  local failure, packed = answer(name, (kit.encode(...)))
  if failure then raw.error(failure, script_level()) end
  local values, count = kit.decode(packed)
  return unpack(values, 1, count)
end

for name in raw.pairs(package.loaded) do package.loaded[name] = nil end
kit.decode = kit.part("codec")(kit)
kit.use("sentinels")
kit.encode = kit.part("encode")(kit)
for name in raw.string.gmatch(ops, "[^\n.]+%f[\n]") do env[name] = kit.op(name) end
local function add_globals(file, names)
  for name in raw.string.gmatch(names, "%S+") do env[name] = kit.use(file)(name) end
end
add_globals("library", "bit32 loadstring math os state string table unpack utf8")
add_globals("tostring", "tostring")
add_globals("log", "log print")
add_globals("later", "JSON_EMPTY_ARRAY copy deep_copy defer dump json_decode json_encode require")
add_globals("http", "http_get http_multipart http_post http_request")
add_globals("engine", "engine env_get")
add_globals("access", "getmetatable next rawget rawlen rawset")
add_globals("absent", "cdp cmd exec file task template workflow")
string_meta.__index = env.string

local function results(ok, ...)
  if ok then return true, (kit.encode(...)) end
  return false, raw.tostring((...))
end
local function run(source, ...)
  local chunk, problem = raw.load(source, "@script.lua", "t", env)
  if not chunk then return false, problem end
  return results(raw.pcall(chunk, ...))
end
local function run_packed(source, packed)
  local values, count = kit.decode(packed)
  return run(source, unpack(values, 1, count))
end
return run_packed
"""


@cache
def _source(name: str) -> bytes:
    return (LUA_FILES / f"{name}.lua").read_bytes()


class ScriptFailed(Exception):
    """The script raised: the text of its error."""


class LuaKit:
    """One VM.  `run` gives what a script returned, strings as bytes; `lines` holds what it logged."""

    def __init__(
        self,
        *,
        ops: Mapping[str, Answer] | None = None,
        env: Mapping[str, str] | None = None,
        memory_limit: int = 1 << 30,
    ) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.parts: list[str] = []
        self._runtime = new_runtime(memory_limit)
        self._ops = dict(ops or {})
        init = {"ops": list(self._ops), "engine": {"os": "linux", "lua_version": "lua54"}, "env": dict(env or {})}
        told = init_of(init)
        self._run: Function = self._runtime.execute(_PRELUDE, self._read, self._emit, self._answer, *told)

    def run(self, script: str | bytes, *arguments: object) -> list[object]:
        return self.decoded(wire.pack(arguments), script)

    def value(self, expression: str | bytes, *arguments: object) -> object:
        """The first value of an expression; `...` are the arguments."""
        source = expression.encode() if isinstance(expression, str) else expression
        return self.run(b"return (" + source + b")", *arguments)[0]

    def error(self, script: str | bytes, *arguments: object) -> str:
        """The error that a script must raise."""
        try:
            result = self.run(script, *arguments)
        except ScriptFailed as error:
            return str(error)
        raise AssertionError(f"it returned {result}")

    def decode(self, packed: bytes) -> None:
        """Just the codec, on bytes that may be anything."""
        self.decoded(packed, "")

    def decoded(self, packed: bytes, script: str | bytes) -> list[object]:
        """What the script makes of the packed list, which it gets as `...`."""
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
        return _source(name.decode())

    def _emit(self, level: bytes, text: bytes) -> int:
        self.lines.append((level.decode(), text))
        return 0

    def _answer(self, name: bytes, packed: bytes) -> tuple[bytes | None, bytes]:
        try:
            return None, wire.pack(self._ops[name.decode()](*wire.unpack(packed)))
        except OpError as error:
            return str(error).encode(), b""
