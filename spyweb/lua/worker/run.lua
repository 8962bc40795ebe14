-- What a BEGIN may name: procedures, of which `run` is a script job's run, with its hooks and what it deferred.
-- The chunk takes the kit and the prelude's border: traced(run, f, ...), check() (raises when the step has been killed),
-- trace() (trace.lua), current() (the run being stepped), fail(message).  It returns the procedures, and what the prelude
-- needs to end a run: farewell(run), failed(run, value, frames).

local kit, border = ...
local raw, env = kit.raw, kit.env
local check, current, fail, trace, traced = border.check, border.current, border.fail, border.trace, border.traced
local pcall, rawget, rawset, select, tostring, type = raw.pcall, raw.rawget, raw.rawset, raw.select, raw.tostring, raw.type
local format, getmetatable = raw.string.format, raw.getmetatable

local MAX_DEFERS = 1000             -- in one run
local RESULT = 65536                -- wire.RESULT
local SUCCESS, ERROR, MEMORY = 0, 1, 6                          -- wire.Ended
local OUT_OF_MEMORY = "not enough memory"                       -- Lua's own text

function env.defer(f)
  if type(f) ~= "function" then
    fail(format("bad argument #1 to 'defer' (function expected, got %s)", f == nil and "no value" or type(f)))
  end
  local run = current()
  if run.deferred >= MAX_DEFERS then fail(format("more than %d deferred functions in one run", MAX_DEFERS)) end
  run.deferred = run.deferred + 1
  run.defers[#run.defers + 1] = f
end

local function text_of(value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  if kind == "table" then
    local meta = getmetatable(value)
    if type(meta) == "table" and rawget(meta, "__tostring") then
      local ok, text = pcall(tostring, value)
      check()
      if ok then return text end
    end
    local message = rawget(value, "message")
    if type(message) == "string" then return message end
  end
  return format("(error object is a %s value)", kind)
end

local function guarded_by_log(run, label, ok, value)
  if ok then return end
  if value == OUT_OF_MEMORY then run.discard = true end
  kit.emit("error", format("%s: %s\n%s", label, text_of(value), trace().text(run.frames)))
end

local function call_hook(run, name, ...)
  local f = rawget(env, name)
  if type(f) == "function" then guarded_by_log(run, name, traced(run, f, ...)) end
end

local function run_defers(run)
  local defers = run.defers
  run.deferring = true
  while defers[1] do
    local f = defers[#defers]
    defers[#defers] = nil
    guarded_by_log(run, "defer", traced(run, f))
  end
  run.deferring = false
end

-- Each of these is begun once, whatever ends the run meanwhile.
local function farewell(run)
  local ctx = run.ctx
  if run.announced ~= (run.ended == SUCCESS) then
    run.announced = run.ended == SUCCESS
    if run.announced then
      rawset(ctx, "final", true)
      call_hook(run, "on_success", ctx, run.result)
    else
      rawset(ctx, "error", run.value)
      rawset(ctx, "final", not run.may_retry)
      call_hook(run, "on_error", run.reason, ctx)
    end
  end
  if not run.finished then
    run.finished = true
    call_hook(run, "on_finally", ctx)
  end
  run_defers(run)
end

local function failed(run, value, frames)
  run.ended = value == OUT_OF_MEMORY and MEMORY or ERROR
  run.value, run.reason, run.traceback = value, text_of(value), trace().text(frames)
end

local function shown(...)
  if select("#", ...) == 0 then return nil end
  local ok, packed = pcall(kit.encode, ...)
  check()
  return ok and #packed <= RESULT and packed or nil
end

local function judge(run, ok, ...)
  local first, second = ...
  if not ok then return failed(run, first, run.frames) end
  if first == false or first == nil and second ~= nil then
    return failed(run, second == nil and "returned false" or second, nil)
  end
  run.ended, run.reason, run.traceback = SUCCESS, "", ""
  run.result, run.packed = first, shown(...)
end

local defines_run = false           -- the chunk has run, and defined `run`

local function after_chunk(ctx, ...)
  local f = rawget(env, "run")
  if type(f) ~= "function" then return ... end
  defines_run = true
  return f(ctx)
end

local function script(ctx)
  local f = defines_run and rawget(env, "run")
  if type(f) == "function" then return f(ctx) end
  return after_chunk(ctx, kit.script(ctx))
end

-- What BEGIN may name.  A procedure runs in the run's coroutine and leaves in the run how it ended; where it sets
-- run.ctx, hooks and deferred functions follow.
local procedures = {}

function procedures.run(run, ctx, may_retry)
  ctx.shared = {}
  run.ctx, run.may_retry = ctx, may_retry
  judge(run, traced(run, script, ctx))
end

return procedures, farewell, failed
