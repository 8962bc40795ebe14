-- What stands for JSON's null and for an empty array, what table.freeze has frozen (frozen table -> where its contents are),
-- and the one rule for every text.  Stays loaded: a second null would not be the first.

local runtime = ...
local setmetatable, raw = runtime.raw.setmetatable, runtime.raw
local math_type, tointeger, raw_tostring = raw.math.type, raw.math.tointeger, raw.tostring

-- Frozen from the start: one that a script had changed would no longer mean what it says.
local SENTINEL = {
  __newindex = function() return runtime.use("failures").refuse_write() end,
  __metatable = false,
}

local null, empty_array = setmetatable({}, SENTINEL), setmetatable({}, SENTINEL)
local frozen = setmetatable({ [null] = {}, [empty_array] = {} }, { __mode = "k" })

-- A float that is integral within 64 bits is shown, sent and stored as that integer.
local function tostring(value)
  if math_type(value) == "float" then value = tointeger(value) or value end
  return raw_tostring(value)
end

return { null = null, empty_array = empty_array, JSON_EMPTY_ARRAY = empty_array, frozen = frozen, tostring = tostring }
