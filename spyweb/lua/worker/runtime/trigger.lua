-- Runs a script for a change of state: first its conditions, then its handler.  Loads when such a run first begins.
-- The chunk takes the runtime and what run.lua knows of the script's chunk, and returns react(run, event, conditions).

local runtime, chunk = ...
local raw, env = runtime.raw, runtime.env
local error, format, rawget, rawequal, type = raw.error, raw.string.format, raw.rawget, raw.rawequal, raw.type

local SKIPPED = 8                   -- wire.Ended

local function find(name)
  local f = rawget(env, name)
  return type(f) == "function" and f
end

-- Returns a condition that said no, if all did.  Only false is a no: nil lets it run.
local function refusal(conditions, event, ctx)
  local name
  for i = 1, #conditions do
    name = conditions[i]
    local f = find(name) or error(format("`when` names %s, and there is no such function", name), 0)
    if not rawequal(f(event, ctx), false) then return nil end
  end
  return name
end

-- Skips the run: no hook follows, as if it had not begun.  What the conditions have deferred still runs.
local function decline(run, name)
  run.declined, run.announced, run.finished = true, false, true
  run.ended, run.reason, run.traceback = SKIPPED, format("%s returned false", name), ""
end

local function handle(run, event, conditions, is_fresh, ...)
  local ctx, on_state, f = run.ctx, find("on_state"), find("run")
  if conditions[1] and not on_state and not f then
    error("`when` needs a handler, a global function on_state or run: without one the file has run before it is asked", 0)
  end
  local name = refusal(conditions, event, ctx)
  if name then return decline(run, name) end
  run.called = on_state or f
  if on_state then return on_state(event, ctx) end
  if f then return f(ctx) end
  if is_fresh then return ... end
  return chunk.script(ctx)
end

return function(run, event, conditions)
  if runtime.loader then runtime.use("loads").wait_for_script() end
  if chunk.is_loaded() then return handle(run, event, conditions, false) end
  return handle(run, event, conditions, true, chunk.load(run.ctx))
end
