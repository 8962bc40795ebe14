-- Makes the script's globals that are not there from the start, each when it is first looked up: few scripts need many.
-- After many lookups of unknown names, or when something could look behind the metatable of `_G` (pairs, next, rawget;
-- runtime.complete), all of them are made, and `_G` is a table like any other.
-- Loads when a script first looks up a global that is not there, or assigns one.

local runtime, internals = ...
local raw, env, use, string_meta = runtime.raw, runtime.env, runtime.use, internals.string_meta
local raise, next, rawget, rawset, setmetatable = raw.error, raw.next, raw.rawget, raw.rawset, raw.setmetatable
local find, gmatch, match, type = raw.string.find, raw.string.gmatch, raw.string.match, raw.type

-- The file that makes a global; it returns a table with it.  One text, since every VM has this, and a table is larger.
local FILES = " collectgarbage=protected load=protected pcall=protected setmetatable=protected xpcall=protected "
  .. "getmetatable=access next=access rawget=access rawlen=access rawset=access "
  .. "JSON_EMPTY_ARRAY=values tostring=values "
  .. "log=log print=log "
  .. "crypto=crypto data=data engine=engine env_get=engine values=given Values=given "
  .. "cdp=engine exec=engine file=file template=template workflow=engine "

-- The globals that standard.lua makes.
local STANDARD = " bit32 coroutine loadstring math os state string table unpack utf8 "

-- The file of a function, which is loaded when it is first called: it is large, or many look it up and few call it.
local FILES_OF_CALLS = {
  copy = "copy", deep_copy = "copy", defer = "run", dump = "dump", json_decode = "json", json_encode = "json",
  parallel = "branches", parallel_map = "branches", require = "modules", skip = "ending", task = "tasks",
}

-- Ops whose responses have headers, to be read in any case.
local HTTP = { http_get = true, http_multipart = true, http_post = true, http_request = true }

-- Other files of ours need these again: tables.lua the same `next` that the script has, and there is only one null.
local STAY_LOADED = { access = true, given = true, protected = true, values = true }

local taken = {}                    -- names that the script has assigned meanwhile, or been given: they stay its own
local misses_left = 64                 -- how many unknown names are looked up, or names assigned, before all are made

local globals = {}

local function http_op(name)
  local op = runtime.op(name)
  return function(...) return use("headers").with_headers(op(...)) end
end

local function new_global(name)
  if runtime.has_op(name) then return HTTP[name] and http_op(name) or runtime.op(name) end
  if FILES_OF_CALLS[name] then return runtime.lazy(FILES_OF_CALLS[name], name) end
  if find(STANDARD, " " .. name .. " ", 1, true) then return use("standard")[name] end
  local file = match(FILES, " " .. name .. "=(%a+)")
  return file and use(file)[name]
end

-- When memory runs out half-way, the next call makes the rest, of the same files: they are dropped last.
function globals.complete()
  if not taken then return end
  string_meta.__index = use("standard").string
  local values = {}
  for name in gmatch(runtime.ops, "%f[^\n](%a[%w_]*)\n") do values[name] = new_global(name) end  -- `state.*`: state.lua
  for name in next, FILES_OF_CALLS do values[name] = new_global(name) end
  for name in gmatch(STANDARD, "%S+") do values[name] = new_global(name) end
  for name in gmatch(FILES, "([%w_]+)=") do
    if not taken[name] then values[name] = new_global(name) end
  end
  for name, value in next, values do
    if not taken[name] and rawget(env, name) == nil then rawset(env, name, value) end
  end
  setmetatable(env, nil)
  taken = nil
  internals.parts.standard = nil
  for file in gmatch(FILES, "=(%a+)") do
    if not STAY_LOADED[file] then internals.parts[file] = nil end
  end
end

local function count_miss()
  misses_left = misses_left - 1
  if misses_left == 0 then globals.complete() end
end

function globals.get(name)
  if type(name) ~= "string" or taken[name] or not find(name, "^%a[%w_]*$") then return count_miss() end
  if find(FILES, " " .. name .. "=access ", 1, true) then
    globals.complete()
    return rawget(env, name)
  end
  local value = new_global(name)
  if value == nil then return count_miss() end
  taken[name] = true
  rawset(env, name, value)
  return value
end

function globals.set(name, value)
  if name == nil or name ~= name then raise(name == nil and "index is nil" or "index is NaN", 2) end
  taken[name] = true
  rawset(env, name, value)
  count_miss()
end

function globals.pairs()
  globals.complete()
  return next, env, nil
end

return globals
