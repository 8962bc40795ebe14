-- The sentinels for JSON's null and for an empty array, the contents of frozen tables (frozen table -> where they are), and
-- the one rule for turning a value into text.  Stays loaded: a second null would not equal the first.

local runtime = ...
local setmetatable, raw = runtime.raw.setmetatable, runtime.raw
local math_type, tointeger, raw_tostring = raw.math.type, raw.math.tointeger, raw.tostring

-- Frozen from the start: a script must not be able to change a sentinel.
local SENTINEL = {
  __newindex = function() return runtime.use("failures").refuse_write() end,
  __metatable = false,
}

local null, empty_array = setmetatable({}, SENTINEL), setmetatable({}, SENTINEL)
local frozen = setmetatable({ [null] = {}, [empty_array] = {} }, { __mode = "k" })

-- Returns the text of a value.  A float that is integral within 64 bits is shown, sent and stored as that integer.
local function tostring(value)
  if math_type(value) == "float" then value = tointeger(value) or value end
  return raw_tostring(value)
end

return { null = null, empty_array = empty_array, JSON_EMPTY_ARRAY = empty_array, frozen = frozen, tostring = tostring }
