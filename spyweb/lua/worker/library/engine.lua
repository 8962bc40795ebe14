-- The table `engine`, env_get, `workflow`, and placeholders for the families of SpyWeb and sloth-runner that this version does
-- not have: a script may put its own in their place.

local runtime = ...
local setmetatable, gsub, type = runtime.raw.setmetatable, runtime.raw.string.gsub, runtime.raw.type
local facts = runtime.decode(runtime.facts)[1]
local values = facts.env

local engine = { engine = facts.engine }

-- SpyWeb also accepts a name with its prefix.
function engine.env_get(name)
  if type(name) ~= "string" then runtime.bad_argument(1, "env_get", "string", name) end
  return values[name] or values[gsub(name, "^SPYWEB_", "")]
end

-- A placeholder holds the name of its family.
local ABSENT = {
  __metatable = false,
  __index = function(family, member) return runtime.use("failures").refuse_member(family, member) end,
  __call = function(family) return runtime.use("failures").refuse_call(family) end,
}
for _, name in runtime.raw.ipairs { "cdp", "cmd", "exec", "file", "template" } do
  engine[name] = setmetatable({ name }, ABSENT)
end

-- What it makes is in tasks.lua, which loads when a script declares something.
engine.workflow = setmetatable({ define = runtime.lazy("tasks", "define") }, {
  __metatable = false,
  __call = function(_, name) return runtime.use("tasks").define(name) end,
})

return engine
