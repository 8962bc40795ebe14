-- The global `state`: a function for each op of that family, and, built on them, those that take a Lua function or whose
-- values must not cross to the daemon.  Loads when something of it is looked up.

local runtime = ...
local raw, emit, pcall = runtime.raw, runtime.emit, runtime.pcall
local format, gmatch, select, type = raw.string.format, raw.string.gmatch, raw.select, raw.type

local TIMEOUT = 30                  -- seconds, ops/state_locks.py

local state = { null = runtime.null }

-- In a task that is delegated to an agent (workflows.lua), the keys are that agent's.
local function call(name, ...)
  local agent = runtime.agent and runtime.agent()
  if agent then return runtime.call("_at", agent, name, select("#", ...), ...) end
  return runtime.call(name, ...)
end

for name, member in gmatch(runtime.ops, "%f[^\n](state%.([^\n]+))") do
  state[member] = function(...) return call(name, ...) end
end

-- The default stays here: a table remains the same table, and a function may be one.
local function or_default(default, value, ...)
  if value == nil then return default, ... end
  return value, ...
end

function state.get(key, default)
  return or_default(default, call("state.get", key))
end

-- Returns the function's results, or nil, the text of its error and the error.  A kill doesn't come here: it ends the run,
-- which gives the lock back.
local function release(name, holder, ok, ...)
  local released, problem = call("state.unlock", name, holder)
  if not released then emit("warn", problem) end
  if ok then return ... end
  local text = runtime.use("ending").text_of((...))
  emit("error", format("state.with_lock: lock '%s': %s", name, text))
  return nil, text, (...)
end

-- The function, the timeout and the holder, recognised by their types.
local function sort_out(...)
  local f, timeout, holder
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    local kind = type(value)
    if kind == "function" then f = f or value
    elseif kind == "number" then timeout = timeout or value
    elseif kind == "string" then holder = holder or value end
  end
  return f, timeout, holder
end

function state.with_lock(name, ...)
  local f, timeout, holder = sort_out(...)
  if type(name) ~= "string" and type(name) ~= "number" then runtime.bad_argument(1, "state.with_lock", "string", name) end
  if not f then runtime.bad_argument(2, "state.with_lock", "function", (...)) end
  pcall(type, f)                    -- raises where protected calls nest too deep: not once the lock is ours
  local locked, problem
  if holder then locked, problem = call("state.lock", name, holder, timeout or TIMEOUT)
  else locked, problem = call("state.lock", name, timeout) end
  if not locked then return nil, problem end
  return release(name, holder, pcall(f))
end

return state
