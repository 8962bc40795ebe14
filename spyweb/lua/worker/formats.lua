-- What string.format does to floats: loads when a script first passes it one.

local kit = ...
local raw = kit.raw
local ceil, floor, math_type, tointeger = raw.math.ceil, raw.math.floor, raw.math.type, raw.math.tointeger
local gmatch, select, type, unpack = raw.string.gmatch, raw.select, raw.type, raw.table.unpack

-- Luau's %d and its like cut a fraction off; where that gives no 64-bit integer, Lua's own error follows.
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

return { without_floats = without_floats }
