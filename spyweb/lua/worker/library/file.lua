-- The table `file`: a function for each op of that family, and file.template, which renders here, under the job's own limits,
-- what the daemon then writes.

local runtime = ...
local raw, call = runtime.raw, runtime.call

local file = {}

for name, member in raw.string.gmatch(runtime.ops, "%f[^\n](file%.([^\n]+))") do
  file[member] = function(...) return call(name, ...) end
end

-- The values stay here: they may be what no op can be passed.
local function without_values(given)
  local rest = {}
  for key, value in raw.next, runtime.frozen[given] or given do
    if key ~= "vars" and key ~= "text" then rest[key] = value end
  end
  return rest
end

function file.template(given)
  local render = runtime.use("render")
  local text, name, vars = render.source_of(given, "file.template")
  if not text then return nil, name end
  local content, problem = render.render_text(text, vars, name)
  if not content then return nil, problem end
  return call("_template_file", without_values(given), content)
end

return { file = file }
