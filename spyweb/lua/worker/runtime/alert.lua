-- The procedure `alert` calls on_down or on_up of a script's file with an incident of its job.  Loads when such a run
-- first begins.  The chunk takes the runtime and returns the procedures, by name.

local runtime = ...
local chunk = runtime.use("run").inside()
local raw, env = runtime.raw, runtime.env
local error, format, rawget, type = raw.error, raw.string.format, raw.rawget, raw.type
local traced = runtime.internals.traced

local DECLINED = 8                  -- wire.Ended

local function find(name)
  local f = rawget(env, name)
  return type(f) == "function" and f
end

-- Executes the file where this VM has not, since nothing else says what it defines.  One that fails may have defined the
-- function before that: it is then the more needed.
local function load(run, name)
  local ok, problem = traced(run, chunk.load, run.ctx)
  if not ok and not find(name) then error(problem, 0) end
end

local function tell(run, name, incident)
  if runtime.loader then runtime.use("loads").wait_for_script() end
  if not find(name) and not chunk.is_loaded() then load(run, name) end
  local f = find(name)
  if f then
    run.called = f
    return f(incident, run.ctx)
  end
  run.declined, run.ended, run.reason, run.traceback = true, DECLINED, format("there is no function %s", name), ""
end

-- No hook follows: those are of the job's own runs.
local function alert(run, ctx, may_retry, name, incident, values)
  chunk.set_out(run, ctx, may_retry, values)
  run.announced, run.finished, run.may_skip = false, true, false
  chunk.judge(run, chunk.attempt(run, tell, run, name, incident))
end

return { alert = alert }
