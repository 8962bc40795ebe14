-- The standard library as a script finds it: Lua's own, adjusted where scripts written for Luau expect it.  Loads when one
-- of these is first looked up.  Everything is captured from the kit, which no script can reach, and nothing is called
-- through a string's methods: a script that replaces string.format or poisons metatables hurts only itself.
-- This code is stripped, so it has no lines: an error that is the script's fault is raised at the level of its own line.
-- The chunk takes the kit and returns a function that makes the global of a name.

local kit = ...
local raw, use = kit.raw, kit.use
local getmetatable, math_type, next, pcall = raw.getmetatable, raw.math.type, raw.next, raw.pcall
local rawequal, select, setmetatable = raw.rawequal, raw.select, raw.setmetatable
local format, raw_date = raw.string.format, raw.os.date

-- What a C function that we stand in front of gave, or its error, with its name and the script's line.
local function outcome(name, ok, value, ...)
  if ok then return value, ... end
  return use("failures").raise_again(name, value)
end

local function format_values(layout, ...)
  for i = 1, select("#", ...) do
    if math_type((select(i, ...))) == "float" then
      return outcome("format", pcall(format, layout, use("formats").without_floats(layout, ...)))
    end
  end
  return outcome("format", pcall(format, layout, ...))
end

local function date(layout, time)
  if math_type(time) == "float" then time = raw.math.floor(time) end
  return outcome("date", pcall(raw_date, layout, time))
end

-- Tables that get the functions of a file as soon as something is looked up that they don't have.  What a script has put
-- there itself stays.
local FILES = { string = "text", table = "tables", math = "numbers", bit32 = "bit32", coroutine = "coroutines", state = "state" }
local incomplete = {}

local function complete(target)
  local functions = kit.part(incomplete[target])(kit)
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

-- To be called of a table before anything looks behind its metatable, or puts another in its place.  rawequal: with == a
-- script's __metatable would have its __eq called, and be handed ours.
function kit.whole(target)
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

-- Bytecode is good for nothing here: load takes text only.
local function new_string()
  local target = new_table("string")
  target.format, target.dump = format_values, nil
  return target
end

-- Lua seeds by the clock and by where the state lies: workers of one zygote began with the same numbers.
local function new_math()
  raw.math.randomseed(kit.seed())
  return new_table("math")
end

local strings

return function(name)
  if name == "string" then
    strings = strings or new_string()
    return strings
  elseif name == "os" then
    return { time = raw.os.time, difftime = raw.os.difftime, clock = kit.clock, date = date }
  elseif name == "math" then return new_math()
  elseif name == "unpack" then return raw.table.unpack
  elseif name == "loadstring" then return kit.load end
  return new_table(name)
end
