-- What the daemon says about itself.
-- The chunk takes the kit and returns a function that makes the global of a name.

local kit = ...
local gsub, type = kit.raw.string.gsub, kit.raw.type
local facts = kit.decode(kit.facts)[1]
local values = facts.env

-- SpyWeb takes a name with its prefix too.
local function env_get(name)
  if type(name) ~= "string" then kit.bad_argument(1, "env_get", "string", name) end
  return values[name] or values[gsub(name, "^SPYWEB_", "")]
end

return function(name) return name == "engine" and facts.engine or env_get end
