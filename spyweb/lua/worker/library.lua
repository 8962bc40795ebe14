-- What a script finds in its globals besides ops: the standard library, adjusted where scripts written for Luau expect
-- it, and the pure functions (log, json_*, dump, require, ...).  Runs once in each VM, after codec.lua, with the kit of
-- the prelude.  Parts that many scripts never touch are files of their own and load at first use.
-- Everything is captured from kit.raw before any script code, and nothing is called through a string's methods: a script
-- that replaces string.format or poisons metatables hurts only itself.
-- This code is stripped, so it has no lines: an error that is the script's fault is raised at the level of its own line.

local kit = ...
local raw, env, frozen = kit.raw, kit.env, kit.frozen
local concat, floor, format, lower, sub = raw.table.concat, raw.math.floor, raw.string.format, raw.string.lower, raw.string.sub
local byte, find, gsub, raw_date = raw.string.byte, raw.string.find, raw.string.gsub, raw.os.date
local math_type, pcall, tointeger = raw.math.type, raw.pcall, raw.math.tointeger
local error, next, rawget, rawlen, rawset = raw.error, raw.next, raw.rawget, raw.rawlen, raw.rawset
local select, setmetatable, tostring, type = raw.select, raw.setmetatable, raw.tostring, raw.type
local emit = kit.emit

local LOG_LINE = 16384  -- bytes, as wire.LOG_LINE

-- Raises what a C function of Lua would, at the line of whoever called our caller (level 3, the default).
local function bad_argument(position, name, expected, value, level)
  error(format("bad argument #%d to '%s' (%s expected, got %s)", position, name, expected, type(value)), level or 3)
end
kit.bad_argument = bad_argument
kit.setmetatable = env.setmetatable  -- the prelude's, which refuses __gc and __close

-- Parts that load at first use -------------------------------------------------------------------------------------

local parts = {}

local function part(file)
  local functions = parts[file]
  if not functions then
    functions = kit.part(file)(kit)
    parts[file] = functions
  end
  return functions
end

-- A function that is in another file.  It stays good when a script keeps it in a local before the file is loaded.
local function later(file, name)
  local real
  return function(...)
    if not real then real = part(file)[name] end
    return real(...)
  end
end

-- Fills a table with the functions of a part when something is looked up that it does not have.  What the script has put
-- there itself stays.
local function complete(target, file)
  local functions = part(file)
  setmetatable(target, nil)
  for name, value in next, functions do
    if target[name] == nil then target[name] = value end
  end
end

local function complete_later(target, file)
  return setmetatable(target, {
    __index = function(_, name)
      complete(target, file)
      return rawget(target, name)
    end,
    __pairs = function()
      complete(target, file)
      return next, target, nil
    end,
  })
end

-- The standard library ---------------------------------------------------------------------------------------------

-- What a C function that we stand in front of gave, or its error with its name and the script's line.  An error that has
-- a position comes from the script's own __tostring; a memory error must stay the text that the prelude knows.
local function outcome(name, ok, value, ...)
  if ok then return value, ... end
  if type(value) ~= "string" or value == "not enough memory" or find(value, "^[^\n]-:%d+: ") then error(value, 0) end
  error((gsub(value, "^(bad argument #%d+ to )'%?'", "%1'" .. name .. "'")), 2)
end

-- One rule for every text: a float that is integral within 64 bits is shown, sent and stored as that integer.
local function text_of(value)
  if math_type(value) == "float" then value = tointeger(value) or value end
  return tostring(value)
end

local function format_values(layout, ...)
  for i = 1, select("#", ...) do
    if math_type((select(i, ...))) == "float" then
      return outcome("format", pcall(format, layout, part("formats").without_floats(layout, ...)))
    end
  end
  return outcome("format", pcall(format, layout, ...))
end

local function date(layout, time)
  if math_type(time) == "float" then time = floor(time) end
  return outcome("date", pcall(raw_date, layout, time))
end

local function adjust_standard_tables()
  env.tostring, env.unpack, env.loadstring = text_of, raw.table.unpack, env.load
  env.string.format = format_values
  env.os = { time = raw.os.time, difftime = raw.os.difftime, clock = kit.clock, date = date }
  complete_later(env.string, "text")
  complete_later(env.table, "tables")
  complete_later(env.math, "numbers")
  env.bit32 = complete_later({}, "bit32")
end

-- Raw access must see what table.freeze has put elsewhere, and must not write past it ---------------------------------

local function next_of(target, key)
  if type(target) ~= "table" then bad_argument(1, "next", "table", target) end
  return next(frozen[target] or target, key)
end
kit.next = next_of

local function rawget_of(target, key)
  if type(target) ~= "table" then bad_argument(1, "rawget", "table", target) end
  return rawget(frozen[target] or target, key)
end

local function rawset_of(target, key, value)
  if type(target) ~= "table" then bad_argument(1, "rawset", "table", target) end
  if frozen[target] then error("attempt to modify a readonly table", 2) end
  if key == nil or key ~= key then error(key == nil and "table index is nil" or "table index is NaN", 2) end
  return rawset(target, key, value)
end

local function rawlen_of(target)
  if type(target) ~= "string" and type(target) ~= "table" then bad_argument(1, "rawlen", "table or string", target) end
  return rawlen(frozen[target] or target)
end

local function add_raw_access()
  env.next, env.rawget, env.rawset, env.rawlen = next_of, rawget_of, rawset_of, rawlen_of
end

-- The codec's sentinels are frozen from the start: one that a script had changed would no longer mean what it says.
local function add_sentinels()
  local guard = {
    __newindex = function() error("attempt to modify a readonly table", 2) end,
    __metatable = false,
  }
  for _, sentinel in next, { kit.null, kit.empty_array } do frozen[setmetatable(sentinel, guard)] = {} end
  env.JSON_EMPTY_ARRAY = kit.empty_array
end

-- log and print ----------------------------------------------------------------------------------------------------

-- Cut between characters, so that a line that was UTF-8 stays UTF-8.
local function cut(text)
  if #text <= LOG_LINE then return text end
  local kept = LOG_LINE - 40
  for _ = 1, 3 do
    local following = byte(text, kept + 1)
    if following < 0x80 or following >= 0xc0 then break end
    kept = kept - 1
  end
  return format("%s... (%d bytes cut)", sub(text, 1, kept), #text - kept)
end

local function line_of(...)
  local count = select("#", ...)
  if count == 1 then return cut(text_of((...))) end
  local texts = { ... }
  for i = 1, count do texts[i] = text_of(texts[i]) end
  return cut(concat(texts, "\t"))
end

local function logger(level)
  return function(...) emit(level, line_of(...)) end
end

local function add_log()
  local info = logger("info")
  env.print = logger("print")
  env.log = setmetatable(
    { debug = logger("debug"), info = info, warn = logger("warn"), error = logger("error") },
    { __call = function(_, ...) return info(...) end }
  )
end

-- What the daemon says about itself, and ops with something on top -----------------------------------------------------

local function env_get(name)
  if type(name) ~= "string" then bad_argument(1, "env_get", "string", name) end
  local values = kit.init.env
  local value = values[name]
  if value == nil and sub(name, 1, 7) == "SPYWEB_" then value = values[sub(name, 8)] end
  return value
end

local HEADERS = {
  __index = function(headers, name)
    if type(name) == "string" then return rawget(headers, lower(name)) end
  end,
}

local function with_headers(response, ...)
  local headers = type(response) == "table" and response.headers
  if type(headers) == "table" then setmetatable(headers, HEADERS) end
  return response, ...
end

local function dress_http()
  for _, name in next, { "http_get", "http_post", "http_request", "http_multipart" } do
    local op = env[name]
    if op then env[name] = function(...) return with_headers(op(...)) end end
  end
end

-- Families of sloth-runner and SpyWeb that this version does not have ---------------------------------------------------

local absent = {}

local function refuse(family, member)
  local name = absent[family]
  if type(member) == "string" then name = name .. "." .. member end
  error(name .. " is not part of this version", 3)
end

local function add_absent_families()
  local stub = {
    __index = function(family, member) refuse(family, member) end,
    __call = function(family) refuse(family) end,
  }
  for _, name in next, { "cdp", "task", "workflow", "exec", "cmd", "file", "template" } do
    if env[name] == nil then
      env[name] = setmetatable({}, stub)
      absent[env[name]] = name
    end
  end
end

local function add_functions_of_parts()
  env.json_encode, env.json_decode = later("json", "encode"), later("json", "decode")
  env.dump = later("dump", "dump")
  env.copy, env.deep_copy = later("copy", "copy"), later("copy", "deep_copy")
  env.require = later("modules", "require")
end

adjust_standard_tables()
add_sentinels()
add_raw_access()
add_log()
add_absent_families()
add_functions_of_parts()
dress_http()
env.env_get, env.engine = env_get, kit.init.engine
