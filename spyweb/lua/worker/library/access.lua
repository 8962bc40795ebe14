-- The functions that access tables raw (rawget, rawset, next, getmetatable and the like), made safe for frozen tables: they
-- read what table.freeze has moved elsewhere, and do not write past it.  A script that uses one of these gets all globals,
-- since they would show that globals are made when they are first used.  The same holds for the tables of the library.

local runtime = ...
local raw, frozen, bad_argument, whole = runtime.raw, runtime.frozen, runtime.bad_argument, runtime.whole
local next, rawget, rawlen, rawset, type = raw.next, raw.rawget, raw.rawlen, raw.rawset, raw.type

local access = {}

function access.getmetatable(...)
  if raw.select("#", ...) == 0 then runtime.internals.fail("bad argument #1 to 'getmetatable' (value expected)") end
  if type((...)) == "function" then return nil end  -- functions have one only for the fields of `log`
  return raw.getmetatable(whole((...)))
end

function access.next(target, key)
  if type(target) ~= "table" then bad_argument(1, "next", "table", target) end
  if key == nil then whole(target) end
  return next(frozen[target] or target, key)
end

function access.rawget(target, key)
  if type(target) ~= "table" then bad_argument(1, "rawget", "table", target) end
  return rawget(frozen[whole(target)] or target, key)
end

function access.rawset(target, key, value)
  if type(target) ~= "table" or frozen[target] or key == nil or key ~= key then
    runtime.use("failures").refuse_rawset(target, key)
  end
  return rawset(target, key, value)
end

function access.rawlen(target)
  local kind = type(target)
  if kind ~= "table" and kind ~= "string" then bad_argument(1, "rawlen", "table or string", target) end
  return rawlen(frozen[target] or target)
end

return access
