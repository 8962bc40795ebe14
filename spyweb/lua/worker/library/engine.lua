-- The tables `engine` and `exec`, env_get, `workflow`, and placeholders for the families of SpyWeb and sloth-runner that this version does
-- not have: a script may put its own in their place.

local runtime = ...
local raw = runtime.raw
local setmetatable, gsub, sub, type, ipairs, error, rawget =
  raw.setmetatable, raw.string.gsub, raw.string.sub, raw.type, raw.ipairs, raw.error, raw.rawget
local facts = runtime.decode(runtime.facts)[1]
local variables = runtime.variables ~= "" and runtime.decode(runtime.variables)[1] or { env = {}, rules = {} }

local function refuse(text, name)
  name = gsub(gsub(sub(name, 1, 80), "[^%w_.-]", "?"), "%%", "%%%%")
  error(gsub(text, "%z", name), 3)
end

local engine = { engine = facts.engine }

-- A manual run may be one whose use of permissions is noted.
local function note(name)
  local run = runtime.internals.now.run
  local trigger = run and type(run.ctx) == "table" and rawget(run.ctx, "trigger")
  if type(trigger) ~= "table" or rawget(trigger, "type") ~= "manual" then return end
  local told = run.told or {}
  run.told = told
  if not told[name] then
    told[name] = true
    runtime.emit("env", name)
  end
end

-- SpyWeb also accepts a name with its prefix.
function engine.env_get(name)
  if type(name) ~= "string" then runtime.bad_argument(1, "env_get", "string", name) end
  if variables.env[name] == nil then name = gsub(name, "^SPYWEB_", "") end
  for _, rule in ipairs(variables.rules) do
    if not rule.names[name] then refuse(rule.refusal, name) end
  end
  note(name)
  return variables.env[name]
end

-- A placeholder holds the name of its family.
local ABSENT = {
  __metatable = false,
  __index = function(family, member) return runtime.use("failures").refuse_member(family, member) end,
  __call = function(family) return runtime.use("failures").refuse_call(family) end,
}
for _, name in ipairs { "cdp" } do
  engine[name] = setmetatable({ name }, ABSENT)
end

engine.exec = { run = runtime.op("exec.run") }

-- What it makes is in tasks.lua, which loads when a script declares something.
engine.workflow = setmetatable({ define = runtime.lazy("tasks", "define") }, {
  __metatable = false,
  __call = function(_, name) return runtime.use("tasks").define(name) end,
})

return engine
