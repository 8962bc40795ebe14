-- The table `data`: JSON and YAML as sloth-runner has them, with nil and a message for what can't be read or written.
-- data.parse_yaml is an op.

local runtime = ...
local type = runtime.raw.type

local WITHOUT = { ["function"] = true, thread = true, userdata = true }

local data = {}

local function check(name, value)
  if WITHOUT[type(value)] then runtime.bad_argument(1, name, "value", value, 4) end
end

function data.to_json(value)
  check("data.to_json", value)
  local text, problem = runtime.use("json").write(value)
  return text, problem and "JSON can't hold " .. problem
end

function data.to_yaml(value)
  check("data.to_yaml", value)
  local text, problem = runtime.use("yaml").write(value)
  return text, problem and "YAML can't hold " .. problem
end

function data.parse_json(text) return runtime.use("json").read(text, "data.parse_json") end

function data.parse_yaml(...) return runtime.call("data.parse_yaml", ...) end

return { data = data }
