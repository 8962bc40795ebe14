-- Runs a script job: the procedure `run`, with its hooks and deferred functions.  `trigger` (trigger.lua) and `alert`
-- (alert.lua) do so for a change of state and for an incident.
-- The chunk takes the runtime and returns the procedures, by name.

local runtime = ...
local raw, env, internals = runtime.raw, runtime.env, runtime.internals
local now, traced = internals.now, internals.traced
local pcall, rawequal, rawget, select, type = raw.pcall, raw.rawequal, raw.rawget, raw.select, raw.type
local format, sub = raw.string.format, raw.string.sub

local MAX_DEFERS = 1000             -- in one run
local RESULT = 65536                -- wire.RESULT: a larger table is not shown
local TEXT = RESULT - 16            -- of a text so much is shown: what packing adds has room
local SUCCESS = 0                   -- wire.Ended

-- The procedures.  Each runs in the run's coroutine and sets in the run how it ended; when it sets run.ctx, hooks and
-- deferred functions follow.  The table also holds the `defer` of scripts.
local procedures = {}

function procedures.defer(f)
  if type(f) ~= "function" then
    internals.fail(format("bad argument #1 to 'defer' (function expected, got %s)", f == nil and "no value" or type(f)))
  end
  local run = now.run
  if run.deferred >= MAX_DEFERS then internals.fail(format("more than %d deferred functions in one run", MAX_DEFERS)) end
  run.deferred = run.deferred + 1
  run.defers[#run.defers + 1] = f
end

-- Sets the result as people are shown it, packed.  A single scalar is packed by the worker: a VM may never need the encoder.
local function show(run, ...)
  local count, first = select("#", ...), ...
  if count == 1 and type(first) ~= "table" and type(first) ~= "function" and type(first) ~= "thread" then
    if type(first) == "string" and #first > TEXT then first = sub(first, 1, TEXT) end
    run.is_scalar, run.shown = true, first
  elseif count > 0 then
    local ok, packed = pcall(runtime.encode, ...)
    if now.killed then internals.stop() end
    run.packed = ok and #packed <= RESULT and packed or nil
  end
end

local function judge(run, ok, ...)
  local first, second = ...
  run.is_bare, run.may_skip = false, false
  if not ok then return internals.failed(run, first, run.frames) end
  if first ~= nil and rawequal(first, run.skip) then return runtime.use("ending").skipped(run) end
  if first == false or first == nil and second ~= nil then
    if second == nil then second = "returned false" end
    return runtime.use("ending").returned(run, second)
  end
  if run.declined then return end   -- by a condition: it has ended already
  if run.skip then runtime.emit("warn", "the run has called skip(reason), and has not returned it: it is not skipped; write `return skip(reason)`") end
  run.ended, run.reason, run.traceback = SUCCESS, "", ""
  run.result = first
  show(run, ...)
end

local is_loaded = false             -- the chunk has run to its end
local defines_run = false           -- and defined `run`
local declares = false              -- or tasks

local function loaded(...)
  is_loaded, runtime.loader, now.run.called = true, false, nil
  defines_run = type(rawget(env, "run")) == "function"
  declares = not defines_run and runtime.tasks and runtime.use("tasks").declares()
  return ...
end

local function load_chunk(ctx)
  if runtime.has_run and not is_loaded then runtime.loader = now.run end
  if runtime.tasks then runtime.use("tasks").reset() end
  now.run.called = runtime.script
  return loaded(runtime.script(ctx))
end

local function after_chunk(ctx, ...)
  if declares then
    now.run.may_skip = false
    return runtime.use("workflows").run(ctx)
  end
  if not defines_run then return ... end
  now.run.called = rawget(env, "run")
  return now.run.called(ctx)
end

local function script(ctx)
  if runtime.loader and runtime.loader.ended == false then runtime.use("loads").wait_for_script() end
  local f = defines_run and rawget(env, "run")
  if type(f) == "function" then
    now.run.called = f
    return f(ctx)
  end
  if declares then return after_chunk(ctx) end
  return after_chunk(ctx, load_chunk(ctx))
end

-- Calls without protection: then a failure ends the coroutine, whose stack shows where, for any failure.
-- Only when nothing has to be closed (__close): in a dead coroutine that could not call an op.
local function attempt(run, f, ...)
  if runtime.closes then return traced(run, f, ...) end
  run.is_bare = true
  return true, f(...)
end

local function set_out(run, ctx, may_retry, values)
  if values or runtime.given then runtime.use("given").begin(values) end
  if now.seed then now.seed() end
  ctx.shared = {}
  run.ctx, run.may_retry, run.may_skip = ctx, may_retry, true
end

function procedures.run(run, ctx, may_retry, values)
  set_out(run, ctx, may_retry, values)
  judge(run, attempt(run, script, ctx))
end

-- Returns the functions that the other procedures of scripts need.
function procedures.inside()
  return {
    script = script, load = load_chunk, after = after_chunk, set_out = set_out, judge = judge, attempt = attempt,
    is_loaded = function() return is_loaded end, declares = function() return declares end,
  }
end

return procedures
