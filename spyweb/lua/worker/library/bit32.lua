-- bit32 of Lua 5.2 and Luau, on Lua 5.4's integers: numbers are taken modulo 2^32, fractions are cut off.

local runtime = ...
local raw = runtime.raw
local ceil, floor, tointeger = raw.math.ceil, raw.math.floor, raw.math.tointeger
local error, select, tonumber, type = raw.error, raw.select, raw.tonumber, raw.type
local format, pack, unpack = raw.string.format, raw.string.pack, raw.string.unpack

local MASK = 0xffffffff

local function truncated(number)
  return tointeger(number) or tointeger(number < 0 and ceil(number) or floor(number)) or tointeger(number % 4294967296.0)
end

-- Returns a signed number: how far to shift, or where a field is.
local function whole(position, name, value, level)
  local number = value
  if type(value) == "string" then number = tonumber(value) end
  if type(number) ~= "number" then runtime.bad_argument(position, name, "number", value, level or 4) end
  return truncated(number) or 0
end

local function word(position, name, value) return whole(position, name, value, 5) & MASK end

-- Makes a function of any number of words.
local function folded(name, start, combine, finish)
  return function(...)
    local result = start
    for i = 1, select("#", ...) do result = combine(result, (word(i, name, (select(i, ...))))) end
    return finish(result & MASK)
  end
end

local function band(a, b) return a & b end
local function bor(a, b) return a | b end
local function bxor(a, b) return a ~ b end
local function itself(result) return result end
local function is_not_zero(result) return result ~= 0 end

local function bnot(value) return ~word(1, "bnot", value) & MASK end

-- Lua's own shifts drop what leaves 64 bits and turn around for negative distances, as bit32's do within 32.
local function lshift(value, distance)
  return (word(1, "lshift", value) << whole(2, "lshift", distance)) & MASK
end

local function rshift(value, distance)
  return (word(1, "rshift", value) >> whole(2, "rshift", distance)) & MASK
end

local function arshift(value, distance)
  local bits, by = word(1, "arshift", value), whole(2, "arshift", distance)
  if by < 0 or bits < 0x80000000 then return (bits >> by) & MASK end
  if by > 31 then return MASK end
  return ((bits >> by) | (MASK << (32 - by))) & MASK
end

local function rotated(bits, by)
  by = by & 31
  return ((bits << by) | (bits >> (32 - by))) & MASK
end

local function lrotate(value, distance) return rotated(word(1, "lrotate", value), whole(2, "lrotate", distance)) end
local function rrotate(value, distance) return rotated(word(1, "rrotate", value), -whole(2, "rrotate", distance)) end

-- Returns the mask of a field, moved to the right end.  Raises at the line that called our caller.
local function field_mask(name, first, field, width)
  if field < 0 then error(format("bad argument #%d to '%s' (field cannot be negative)", first, name), 3) end
  if width < 1 then error(format("bad argument #%d to '%s' (width must be positive)", first + 1, name), 3) end
  if field > 32 or width > 32 or field + width > 32 then error("trying to access non-existent bits", 3) end
  return MASK >> (32 - width)
end

local function extract(value, field, width)
  local bits, from = word(1, "extract", value), whole(2, "extract", field)
  local size = width == nil and 1 or whole(3, "extract", width)
  local mask = field_mask("extract", 2, from, size)
  return (bits >> from) & mask
end

local function replace(value, new, field, width)
  local bits, put, from = word(1, "replace", value), word(2, "replace", new), whole(3, "replace", field)
  local size = width == nil and 1 or whole(4, "replace", width)
  local mask = field_mask("replace", 3, from, size)
  return (bits & ~(mask << from)) | ((put & mask) << from)
end

local function countlz(value)
  local bits, count = word(1, "countlz", value), 32
  while bits ~= 0 do bits, count = bits >> 1, count - 1 end
  return count
end

local function countrz(value)
  local bits, count = word(1, "countrz", value), 0
  if bits == 0 then return 32 end
  while bits & 1 == 0 do bits, count = bits >> 1, count + 1 end
  return count
end

local function byteswap(value)
  return (unpack("<I4", pack(">I4", (word(1, "byteswap", value)))))
end

return {
  band = folded("band", MASK, band, itself), bor = folded("bor", 0, bor, itself), bxor = folded("bxor", 0, bxor, itself),
  btest = folded("btest", MASK, band, is_not_zero), bnot = bnot,
  lshift = lshift, rshift = rshift, arshift = arshift, lrotate = lrotate, rrotate = rrotate,
  extract = extract, replace = replace, countlz = countlz, countrz = countrz, byteswap = byteswap,
}
