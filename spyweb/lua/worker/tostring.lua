-- One rule for every text: a float that is integral within 64 bits is shown, sent and stored as that integer.
-- The chunk takes the kit and returns a function that makes the global `tostring`.

local raw = (...).raw
local math_type, tointeger, tostring = raw.math.type, raw.math.tointeger, raw.tostring

local function text_of(value)
  if math_type(value) == "float" then value = tointeger(value) or value end
  return tostring(value)
end

return function() return text_of end
