-- The standard library for scripts: Lua's own, adjusted where scripts written for Luau expect it.  Loads when one of these
-- is first looked up.  Everything is captured from the runtime, which no script can reach, and nothing is called through a
-- string's methods: a script that replaces string.format or poisons metatables hurts only itself.
-- This code is stripped, so it has no lines: an error that is the script's fault is raised at the level of its own line.
-- The chunk returns a table that makes each function when it is first read.

local runtime = ...
local raw, use, host = runtime.raw, runtime.use, runtime.internals.host
local getmetatable, math_type, next, pcall = raw.getmetatable, raw.math.type, raw.next, raw.pcall
local rawequal, select, setmetatable = raw.rawequal, raw.select, raw.setmetatable
local format, gmatch, raw_date, unpack = raw.string.format, raw.string.gmatch, raw.os.date, raw.table.unpack
local ceil, floor, tointeger, type = raw.math.ceil, raw.math.floor, raw.math.tointeger, raw.type

local TIME = 8                      -- the purpose of a call to the worker

-- Returns the results of a C function that we wrap, or raises its error, with its name and the script's line.
local function outcome(name, ok, value, ...)
  if ok then return value, ... end
  return use("failures").raise_again(name, value)
end

-- Luau's %d and the like cut a fraction off; when that gives no 64-bit integer, Lua's own error follows.
local TRUNCATES = { d = true, i = true, c = true, o = true, x = true, X = true }

local function adapted(value, conversion)
  if math_type(value) ~= "float" then return value end
  if conversion == "s" then return tointeger(value) or value end
  if TRUNCATES[conversion] then return value < 0 and ceil(value) or floor(value) end
  return value
end

local function without_floats(layout, ...)
  if type(layout) ~= "string" then return ... end
  local values, index = { ... }, 0
  for conversion in gmatch(layout, "%%[^%a%%]*([%a%%])") do
    if conversion ~= "%" then
      index = index + 1
      values[index] = adapted(values[index], conversion)
    end
  end
  return unpack(values, 1, select("#", ...))
end

local function format_values(layout, ...)
  for i = 1, select("#", ...) do
    if math_type((select(i, ...))) == "float" then
      return outcome("format", pcall(format, layout, without_floats(layout, ...)))
    end
  end
  return outcome("format", pcall(format, layout, ...))
end

local function time(when)
  if when == nil then return host(TIME) end
  return outcome("time", pcall(raw.os.time, when))
end

local function date(layout, time)
  if time == nil then time = host(TIME) end
  if math_type(time) == "float" then time = floor(time) end
  return outcome("date", pcall(raw_date, layout, time))
end

-- Makes tables get the functions of a file as soon as something is looked up that they don't have.  What a script has put
-- there itself stays.
local FILES = { string = "strings", table = "tables", math = "numbers", bit32 = "bit32", coroutine = "coroutines", state = "state" }
local incomplete = {}

local function complete(target)
  local functions = runtime.part(incomplete[target])(runtime)
  setmetatable(target, nil)
  for name, value in next, functions do
    if target[name] == nil then target[name] = value end
  end
end

local incomplete_meta = {
  __index = function(target, name)
    complete(target)
    return target[name]
  end,
  __pairs = function(target)
    complete(target)
    return next, target, nil
  end,
}

-- To be called for a table before its metatable is passed by, or replaced.  rawequal: with == a
-- script's __metatable would have its __eq called, and be handed ours.
function runtime.whole(target)
  if rawequal(getmetatable(target), incomplete_meta) then complete(target) end
  return target
end

local function new_table(name)
  local target = {}
  for key, value in next, name ~= "coroutine" and raw[name] or target do target[key] = value end
  if FILES[name] then
    incomplete[target] = FILES[name]
    setmetatable(target, incomplete_meta)
  end
  return target
end

-- string.dump is left out: load takes text only, so bytecode would be of no use.
local function new_string()
  local target = new_table("string")
  target.format, target.dump = format_values, nil
  return target
end

-- Lua seeds by the clock and by the address of the state: workers of one zygote would begin with the same numbers.
-- Each run begins with a seed of its own, unless the script has chosen one.
local function new_math()
  local target, now = new_table("math"), runtime.internals.now
  function now.seed() raw.math.randomseed(runtime.seed()) end
  now.seed()
  function target.randomseed(...)
    if select("#", ...) == 0 then return raw.math.randomseed(runtime.seed()) end
    now.seed = nil
    return outcome("randomseed", pcall(raw.math.randomseed, ...))
  end
  return target
end

local make = {
  string = new_string,
  math = new_math,
  os = function() return { time = time, difftime = raw.os.difftime, clock = runtime.clock, date = date } end,
  unpack = function() return raw.table.unpack end,
  loadstring = function() return runtime.load end,
}

return setmetatable({}, {
  __index = function(made, name)
    made[name] = make[name] and make[name]() or new_table(name)
    return made[name]
  end,
})
