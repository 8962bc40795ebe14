-- The procedure `trigger` runs a script for a change of state: first its conditions, then its handler.  Loads when such a
-- run first begins.  The chunk takes the runtime and returns the procedures, by name.

local runtime = ...
local chunk = runtime.use("run").inside()
local raw, env = runtime.raw, runtime.env
local error, format, rawget, rawequal, type = raw.error, raw.string.format, raw.rawget, raw.rawequal, raw.type
local traced = runtime.internals.traced

local DECLINED = 8                  -- wire.Ended

local function find(name)
  local f = rawget(env, name)
  return type(f) == "function" and f
end

-- Returns why a condition does not let the run begin, or nothing.  Only false and skip(reason) are a no: nil lets it run.
-- One that fails says no as well, as in iii, and is logged.
local function objection(run, name, event)
  local f = find(name) or error(format("`when` names %s, and there is no such function", name), 0)
  run.called = f
  local ok, said = traced(run, f, event, run.ctx)
  if not ok then return format("%s failed: %s", name, runtime.use("ending").log_failure(run, name, said)) end
  if rawequal(said, false) then return format("%s returned false", name) end
  if said ~= nil and rawequal(said, run.skip) then return run.skip_reason end
end

-- Returns why the last condition said no, if all did.
local function refusal(run, conditions, event)
  local reason
  for i = 1, #conditions do
    reason = objection(run, conditions[i], event)
    if not reason then return nil end
  end
  return reason
end

-- Skips the run: no hook follows, as if it had not begun.  What the conditions have deferred still runs.
local function decline(run, reason)
  run.declined, run.announced, run.finished = true, false, true
  run.ended, run.reason, run.traceback = DECLINED, reason, ""
end

local function handle(run, event, conditions, is_fresh, ...)
  local ctx, on_state, f = run.ctx, find("on_state"), find("run")
  if conditions[1] and not on_state and not f and not chunk.declares() then
    error("`when` needs a handler, a global function on_state or run: without one the file has run before it is asked", 0)
  end
  local reason = refusal(run, conditions, event)
  if reason then return decline(run, reason) end
  run.called = on_state or f
  if on_state then return on_state(event, ctx) end
  if f then return f(ctx) end
  if is_fresh then return chunk.after(ctx, ...) end
  return chunk.script(ctx)
end

local function react(run, event, conditions)
  if runtime.loader then runtime.use("loads").wait_for_script() end
  if chunk.is_loaded() then return handle(run, event, conditions, false) end
  return handle(run, event, conditions, true, chunk.load(run.ctx))
end

-- `conditions`: the names of functions, one of which must let it run, if there are any.
local function trigger(run, ctx, may_retry, event, conditions, values)
  if ctx.trigger.type == "retry" then ctx.trigger.event = event else ctx.trigger = event end
  chunk.set_out(run, ctx, may_retry, values)
  chunk.judge(run, chunk.attempt(run, react, run, event, conditions))
end

return { trigger = trigger }
