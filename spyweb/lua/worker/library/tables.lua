-- The functions that Luau has in `table` besides Lua's own.  Loads when a script first asks `table` for one of these.
-- table.freeze makes the very table read-only, as Luau's does.  Lua 5.4 has no such flag, so the contents move to a table
-- behind it, and a metatable of ours reads from there and refuses writes.  pairs, ipairs, next, #, rawget, rawset, rawlen,
-- the table functions, json_encode, dump, copy and ops see a frozen table as it was, and getmetatable gives its former
-- metatable (false when it had none).  The fields that begin with "__" stay in the table as well: were it itself a
-- metatable, Lua would look for them there and nowhere else; so those few can still be assigned.  A pairs loop over the
-- table that is just being frozen ends there.

local runtime = ...
local raw, env, frozen = runtime.raw, runtime.env, runtime.frozen
local find_text, math_type, tointeger = raw.string.find, raw.math.type, raw.math.tointeger
local error, getmetatable, next, pcall, rawget = raw.error, raw.getmetatable, raw.next, raw.pcall, raw.rawget
local rawequal, rawlen, setmetatable, type = raw.rawequal, raw.rawlen, raw.setmetatable, raw.type
local guarded_setmetatable, frozen_next, whole = runtime.setmetatable, runtime.use("access").next, runtime.whole

runtime.complete()                      -- these look at a table as it is, be it `_G`

local function check_table(name, value)
  if type(value) ~= "table" then runtime.bad_argument(1, name, "table", value, 4) end
end

local function refuse_write() error("attempt to modify a readonly table", 2) end

-- Says whether Lua would let the metatable be replaced; __metatable can stand for any value, so only trying tells.  It is
-- guarded: setting a metatable would arm a __gc that was put there since.
local function is_open(target, meta)
  return meta == nil or type(meta) == "table" and (pcall(guarded_setmetatable, target, meta))
end

local function reader(target, contents, index)
  if index == nil then return contents end
  return function(_, key)
    local value = contents[key]
    if value ~= nil then return value end
    if type(index) == "function" then return index(target, key) end
    return index[key]
  end
end

local function guard_of(target, contents, meta)
  local guard = {}
  if meta then
    for name, value in next, frozen[meta] or meta do guard[name] = value end
  end
  guard.__index, guard.__newindex = reader(target, contents, guard.__index), refuse_write
  guard.__len = guard.__len or function() return rawlen(contents) end
  guard.__pairs = guard.__pairs or function() return frozen_next, target, nil end
  guard.__metatable, guard.__gc, guard.__close = meta or false, nil, nil
  return guard
end

local function move_contents(target)
  local contents = {}
  for key, value in next, target do
    contents[key] = value
    if type(key) ~= "string" or not find_text(key, "^__") then target[key] = nil end
  end
  return contents
end

local function freeze(target)
  check_table("freeze", target)
  if frozen[target] then error("bad argument #1 to 'freeze' (table is already frozen)", 2) end
  if rawequal(target, env) then error("bad argument #1 to 'freeze' (the globals can't be frozen)", 2) end
  local meta = getmetatable(whole(target))
  if not is_open(target, meta) then error("bad argument #1 to 'freeze' (table has a protected metatable)", 2) end
  local contents = move_contents(target)
  frozen[target] = contents
  return setmetatable(target, guard_of(target, contents, meta))
end

local function isfrozen(target)
  check_table("isfrozen", target)
  return frozen[target] ~= nil
end

local function clone(target)
  check_table("clone", target)
  local copy, meta = {}, getmetatable(whole(target))
  if meta and type(meta) ~= "table" then error("bad argument #1 to 'clone' (table has a protected metatable)", 2) end
  for key, value in next, frozen[target] or target do copy[key] = value end
  return meta and guarded_setmetatable(copy, meta) or copy
end

local function clear(target)
  check_table("clear", target)
  if frozen[target] then error("attempt to modify a readonly table", 2) end
  for key in next, target do target[key] = nil end
end

local function create(count, value)
  local size = tointeger(count)
  if not math_type(count) or not size then runtime.bad_argument(1, "create", "integer", count) end
  if size < 0 then error("bad argument #1 to 'create' (size out of range)", 2) end
  local list = {}
  if value ~= nil then
    for i = 1, size do list[i] = value end
  end
  return list
end

-- Compares with ==, as Luau does, and stops at the first hole.
local function find(list, wanted, init)
  check_table("find", list)
  local index = init == nil and 1 or tointeger(init)
  if not index then runtime.bad_argument(3, "find", "integer", init) end
  if index < 1 then error("bad argument #3 to 'find' (index out of range)", 2) end
  local contents = frozen[list] or list
  while true do
    local value = rawget(contents, index)
    if value == nil then return nil end
    if value == wanted then return index end
    index = index + 1
  end
end

return { find = find, clone = clone, clear = clear, create = create, freeze = freeze, isfrozen = isfrozen }
