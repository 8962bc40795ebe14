-- Raw access, which must see what table.freeze has put elsewhere, and must not write past it.  Nor may it see that globals
-- are made when they are looked up: who looks up one of these gets them all.
-- The chunk takes the kit and returns a function that makes the global of a name.

local kit = ...
local raw, frozen, bad_argument = kit.raw, kit.frozen, kit.bad_argument
local rawlen, rawset, type = raw.rawlen, raw.rawset, raw.type

local access = { getmetatable = raw.getmetatable }

local function seeing_frozen(name, get)
  return function(target, key)
    if type(target) ~= "table" then bad_argument(1, name, "table", target) end
    return get(frozen[target] or target, key)
  end
end

access.next, access.rawget = seeing_frozen("next", raw.next), seeing_frozen("rawget", raw.rawget)

function access.rawset(target, key, value)
  if type(target) ~= "table" or frozen[target] or key == nil or key ~= key then
    kit.use("failures").refuse_rawset(target, key)
  end
  return rawset(target, key, value)
end

function access.rawlen(target)
  local kind = type(target)
  if kind ~= "table" and kind ~= "string" then bad_argument(1, "rawlen", "table or string", target) end
  return rawlen(frozen[target] or target)
end

return function(name) return access[name] end
