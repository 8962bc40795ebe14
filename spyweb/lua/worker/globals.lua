-- What the script sees of the rest of Lua, and of ours.  It is not there yet, and few scripts need much of it: a global is
-- made when it is first looked up, until that has been in vain too often, or all of them are asked for: then `_G` becomes a
-- table like any other.  Whatever can look behind a metatable asks for that first (kit.complete).
-- Loaded when a script first looks up a global that is not there, or makes one.  The chunk takes the kit and the border.

local kit, border = ...
local raw, env, use, GLOBALS, string_meta = kit.raw, kit.env, kit.use, border.GLOBALS, border.string_meta
local raise, next, rawget, rawset, setmetatable = raw.error, raw.next, raw.rawget, raw.rawset, raw.setmetatable
local find, gmatch, match, type = raw.string.find, raw.string.gmatch, raw.string.match, raw.type

local taken = {}                    -- names that the script has assigned meanwhile, or been given: they stay its own
local patience = 64                 -- lookups in vain, and names assigned

-- Which file makes what: it gives a function that takes the name and gives the value.
local HOMES = "\n\z
  protected: collectgarbage, load, pcall, setmetatable, xpcall,\n\z
  library: bit32, coroutine, loadstring, math, os, state, string, table, unpack, utf8,\n\z
  log: log, print,\n\z
  tostring: tostring,\n\z
  later: JSON_EMPTY_ARRAY, copy, deep_copy, defer, dump, json_decode, json_encode, require,\n\z
  http: http_get, http_multipart, http_post, http_request,\n\z
  engine: engine, env_get,\n\z
  access: getmetatable, next, rawget, rawlen, rawset,\n\z
  absent: cdp, cmd, exec, file, task, template, workflow,\n"

local globals = {}

local function home_of(name)
  return find(HOMES, " " .. name .. ",", 1, true) and match(HOMES, "\n(%l+):[^\n]* " .. name .. ",")
end

-- Those for HTTP have something on top.
local function is_plain_op(name)
  return find(kit.ops, "\n" .. name .. "\n", 1, true) and not find(name, "^http_")
end

local function new_global(name)
  if is_plain_op(name) then return kit.op(name) end
  local file = home_of(name)
  if file then return use(file)(name) end
end

-- They have made what they can; but tables.lua needs the very `next` that the script has.
local function drop_files()
  for file in gmatch(HOMES, "(%l+):") do
    if file ~= "access" then border.parts[file] = nil end
  end
end

-- Where memory runs out half-way, the next call makes the rest, of the same files: they are dropped last.
function globals.complete()
  if not taken then return end
  string_meta.__index = use("library")("string")
  local values = {}
  for name in gmatch(kit.ops, "%f[^\n](%a[%w_]*)\n") do values[name] = kit.op(name) end  -- `state.*`: state.lua
  for file, names in gmatch(HOMES, "(%l+): ([^\n]*)") do
    local make = use(file)
    for name in gmatch(names, "[%w_]+") do
      if not taken[name] and (file == "http" or not values[name]) then values[name] = make(name) end
    end
  end
  for name, value in next, values do
    if not taken[name] and rawget(env, name) == nil then rawset(env, name, value) end
  end
  setmetatable(env, nil)
  taken = nil
  drop_files()
end

local function lose_patience()
  patience = patience - 1
  if patience == 0 then globals.complete() end
end

function globals.get(_, name)
  if type(name) ~= "string" or taken[name] or not find(name, "^%a[%w_]*$") then return lose_patience() end
  if home_of(name) == "access" then
    globals.complete()
    return rawget(env, name)
  end
  local value = new_global(name)
  if value == nil then return lose_patience() end
  taken[name] = true
  rawset(env, name, value)
  return value
end

function globals.set(_, name, value)
  if name == nil or name ~= name then raise(name == nil and "index is nil" or "index is NaN", 2) end
  taken[name] = true
  rawset(env, name, value)
  lose_patience()
end

function globals.pairs()
  globals.complete()
  return next, env, nil
end

-- The first look, of whatever kind: it tells by how many values come with it.
function globals.look(count, ...)
  if count == 2 then return globals.get(...) end
  if count == 3 then return globals.set(...) end
  return globals.pairs()
end

GLOBALS.__index, GLOBALS.__newindex, GLOBALS.__pairs = globals.get, globals.set, globals.pairs

return globals
