-- What stands for JSON's null and for an empty array, and what table.freeze has frozen.  Loaded when first looked up; the
-- chunk takes the kit and puts into it `null`, `empty_array` and `frozen` (frozen table -> where its contents are).

local kit = ...
local setmetatable = kit.raw.setmetatable

-- Frozen from the start: one that a script had changed would no longer mean what it says.
local SENTINEL = {
  __newindex = function() return kit.use("failures").refuse_write() end,
  __metatable = false,
}

kit.null, kit.empty_array = setmetatable({}, SENTINEL), setmetatable({}, SENTINEL)
kit.frozen = setmetatable({ [kit.null] = {}, [kit.empty_array] = {} }, { __mode = "k" })

return true
