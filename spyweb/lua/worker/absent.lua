-- Families of SpyWeb and sloth-runner that this version does not have: a script may put its own in their place.
-- The chunk takes the kit and returns a function that makes the global of a name.

local kit = ...

-- A family holds its name.
local absent = {
  __metatable = false,
  __index = function(family, member) return kit.use("failures").refuse_member(family, member) end,
  __call = function(family) return kit.use("failures").refuse_call(family) end,
}

return function(name) return kit.raw.setmetatable({ name }, absent) end
