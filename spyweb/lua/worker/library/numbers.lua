-- The functions math.round, math.clamp and math.sign of Luau.  Loads when a script first asks `math` for something that Lua
-- does not have.

local runtime = ...
local raw = runtime.raw
local floor, error, tonumber, type = raw.math.floor, raw.error, raw.tonumber, raw.type

local function number_of(position, name, value)
  local number = value
  if type(value) == "string" then number = tonumber(value) end
  if type(number) ~= "number" then runtime.bad_argument(position, name, "number", value, 4) end
  return number
end

-- Halves go away from zero.  Adding a half and rounding down would be wrong just below it.
local function round_up_from_half(value)
  local below = floor(value)
  return value - below >= 0.5 and below + 1 or below
end

local function round(value)
  local number = number_of(1, "round", value)
  if number < 0 then return -round_up_from_half(-number) end
  return round_up_from_half(number)
end

local function sign(value)
  local number = number_of(1, "sign", value)
  return number > 0 and 1 or number < 0 and -1 or 0
end

local function clamp(value, low, high)
  local number, least, most = number_of(1, "clamp", value), number_of(2, "clamp", low), number_of(3, "clamp", high)
  if least > most then error("bad argument #3 to 'clamp' (max must be greater than or equal to min)", 2) end
  return number < least and least or number > most and most or number
end

return { round = round, sign = sign, clamp = clamp }
