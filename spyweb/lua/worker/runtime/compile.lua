-- Compiles the source of a script to functions.  Loads whenever there is something to compile.
-- The chunk takes the runtime and returns, in a table, compile(source, chunkname) and the `load` that scripts have.

local runtime = ...
local raw, env = runtime.raw, runtime.env
local internals = runtime.internals
local load, select, type = raw.load, raw.select, raw.type
local find, format, sub = raw.string.find, raw.string.format, raw.string.sub

local compiler = {}

-- Says whether anything may have to be closed when a call fails: then the prelude protects the script's call (runtime.closes).
-- And whether the older tables of tasks are named, which are read once the chunk has run (runtime.tasks).
local function look_at(source)
  if type(source) == "string" and (find(source, "ModernDSLs", 1, true) or find(source, "TaskDefinitions", 1, true)) then
    runtime.tasks = true
  end
  runtime.closes = runtime.closes or type(source) ~= "string" or find(source, "__close", 1, true) ~= nil
    or find(source, "<%s*close%s*>") ~= nil
end

-- Says whether the script seems to define `run` or tasks (runtime.has_run): else two runs may execute it at a time.
local function is_executed_once(source)
  if find(source, "%f[%w_]task%s*[%({\"']") or find(source, "%f[%w_]workflow%s*[.%({\"']") then return true end
  if runtime.tasks then return true end
  return (find(source, "function%s+run%s*%(") or find(source, "%f[%w_]run%s*=[^=]")) ~= nil
end

-- Blanks a byte order mark and a first line that begins with #, which editors and shells put there.
function compiler.compile(source, chunkname)
  if sub(source, 1, 3) == "\xef\xbb\xbf" then source = sub(source, 4) end
  if sub(source, 1, 1) == "#" then source = "--" .. source end
  look_at(source)
  if not runtime.script then runtime.has_run = is_executed_once(source) end
  return load(source, chunkname, "t", env)
end

function compiler.load(source, chunkname, mode, ...)
  if type(mode) == "string" and not find(mode, "t", 1, true) then
    return nil, format("attempt to load a text chunk (mode is '%s')", mode)
  end
  local globals = env
  if select("#", ...) > 0 then globals = (...) end
  if chunkname == nil then chunkname = type(source) == "string" and source or "=(load)" end
  look_at(source)
  return internals.unless_killed(load(source, chunkname, "t", globals))
end

return compiler
