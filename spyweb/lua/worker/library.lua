-- What a script finds in its globals besides ops: the standard library, adjusted where scripts written for Luau expect
-- it, and the pure functions (log, json_*, dump, require, ...).  Runs once in a VM, when something of it is first looked
-- up, with the kit of the prelude, and fills kit.globals: the prelude then gives the script what it has not put there itself.
-- Everything is captured from the kit, which no script can reach, and nothing is called through a string's methods: a script
-- that replaces string.format or poisons metatables hurts only itself.
-- This code is stripped, so it has no lines: an error that is the script's fault is raised at the level of its own line.
-- Every byte here is paid in every VM that looks at any of it, so what many scripts never touch, error texts included, is
-- in files that load at first use, and closures share what they can.

local kit = ...
local raw, env, frozen, emit, part = kit.raw, kit.globals, kit.frozen, kit.emit, kit.use
local concat, floor = raw.table.concat, raw.math.floor
local format, gsub = raw.string.format, raw.string.gsub
local raw_date, math_type, tointeger = raw.os.date, raw.math.type, raw.math.tointeger
local next, pcall, rawget, rawlen, rawset = raw.next, raw.pcall, raw.rawget, raw.rawlen, raw.rawset
local select, setmetatable, tostring, type = raw.select, raw.setmetatable, raw.tostring, raw.type

-- Parts that load at first use -------------------------------------------------------------------------------------

-- A function of another file.  It stays good when a script keeps it in a local before that file is loaded.
local function later(file, name)
  return function(...) return part(file)[name](...) end
end

local bad_argument = later("failures", "bad_argument")
kit.bad_argument = bad_argument

-- Tables that get the functions of a part as soon as something is looked up that they don't have.  What a script has put
-- there itself stays.
env.bit32, env.state = {}, {}
local incomplete = { [env.string] = "text", [env.table] = "tables", [env.math] = "numbers", [env.bit32] = "bit32" }
incomplete[env.state] = "state"

local function complete(target)
  local functions = part(incomplete[target])
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

for target in next, incomplete do setmetatable(target, incomplete_meta) end

-- The standard library ---------------------------------------------------------------------------------------------

-- What a C function that we stand in front of gave, or its error, with its name and the script's line.
local function outcome(name, ok, value, ...)
  if ok then return value, ... end
  return part("failures").raise_again(name, value)
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

env.tostring, env.unpack, env.loadstring, env.string.format = text_of, raw.table.unpack, kit.load, format_values
env.os = { time = raw.os.time, difftime = raw.os.difftime, clock = kit.clock, date = date }

-- Raw access must see what table.freeze has put elsewhere, and must not write past it ---------------------------------

local function seeing_frozen(name, access)
  return function(target, key)
    if type(target) ~= "table" then bad_argument(1, name, "table", target) end
    return access(frozen[target] or target, key)
  end
end

local function raw_set(target, key, value)
  if type(target) ~= "table" or frozen[target] or key == nil or key ~= key then
    part("failures").refuse_rawset(target, key)
  end
  return rawset(target, key, value)
end

env.next, env.rawget, env.rawset = seeing_frozen("next", next), seeing_frozen("rawget", rawget), raw_set
kit.next = env.next

function env.rawlen(target)
  local kind = type(target)
  if kind ~= "table" and kind ~= "string" then bad_argument(1, "rawlen", "table or string", target) end
  return rawlen(frozen[target] or target)
end

-- log and print: kit.emit cuts what is too long ------------------------------------------------------------------------

local function logger(level)
  return function(...)
    local count = select("#", ...)
    local texts = { ... }
    for i = 1, count do texts[i] = text_of(texts[i]) end
    emit(level, concat(texts, "\t", 1, count))
  end
end

local info = logger("info")
env.print = logger("print")
env.log = setmetatable(
  { debug = logger("debug"), info = info, warn = logger("warn"), error = logger("error") },
  { __call = function(_, ...) return info(...) end }
)

-- What the daemon says about itself, and ops with something on top -----------------------------------------------------

local facts = kit.decode(kit.facts)[1]
local values = facts.env

-- SpyWeb takes a name with its prefix too.
function env.env_get(name)
  if type(name) ~= "string" then bad_argument(1, "env_get", "string", name) end
  return values[name] or values[gsub(name, "^SPYWEB_", "")]
end

env.engine = facts.engine

for _, name in next, { "http_get", "http_post", "http_request", "http_multipart" } do
  local op = env[name]
  if op then env[name] = function(...) return part("headers").with_headers(op(...)) end end
end

-- Families of SpyWeb and sloth-runner that this version does not have: a script may put its own in their place ----------

local absent = {
  __index = function(family, member) return part("failures").refuse_member(family, member) end,
  __call = function(family) return part("failures").refuse_call(family) end,
}

for _, name in next, { "cdp", "task", "workflow", "exec", "cmd", "file", "template" } do
  if env[name] == nil then env[name] = setmetatable({ name }, absent) end
end

env.JSON_EMPTY_ARRAY = kit.empty_array

env.json_encode, env.json_decode = later("json", "encode"), later("json", "decode")
env.dump, env.copy, env.deep_copy = later("dump", "dump"), later("copy", "copy"), later("copy", "deep_copy")
env.require, env.defer = later("modules", "require"), later("run", "defer")
