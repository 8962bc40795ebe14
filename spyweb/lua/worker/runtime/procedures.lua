-- Finds the procedures that few runs of script jobs and endpoints need, and holds the functions that their files share.
-- Loads when the daemon first names one.  The chunk takes the runtime and returns find(name) -> procedure or nil.

local runtime = ...
local raise, type = runtime.raw.error, runtime.raw.type
local traced, use = runtime.internals.traced, runtime.use

local SUCCESS, ERROR = 0, 6                     -- wire.Ended
local OUT_OF_MEMORY = "not enough memory"       -- Lua's own text

local FILES = { trigger = "trigger", alert = "alert", load = "cycle", cycle = "cycle", tests = "testing", test = "testing" }

local shared = {}

local function after(run, ok, value)
  local traceback
  if not ok then
    if value == OUT_OF_MEMORY then raise(value, 0) end
    value, traceback = use("ending").text_of(value), use("trace").text(run.frames)
  end
  if run.defers[1] then use("ending").run_defers(run) end
  run.deferred = 0
  return ok, value, traceback
end

-- Calls f, then its deferred functions.  Returns true and its first result; or false, the error's text and a traceback.
function shared.attempt(run, f, ...)
  return after(run, traced(run, f, ...))
end

function shared.fail(run, text, traceback)
  run.ended, run.value, run.reason, run.traceback, run.ctx = ERROR, text, text, traceback, nil
end

-- Executes the files of the VM, in order.
function shared.execute(...)
  runtime.script(...)
  local more = runtime.more or {}
  for i = 1, #more do more[i](...) end
end

-- From now on no hook follows, however the run ends: only deferred functions.
function shared.without_hooks(run, ctx)
  run.ctx, run.announced, run.finished = ctx, false, true
end

function shared.succeed(run)
  run.ended, run.reason, run.traceback, run.ctx = SUCCESS, "", "", nil
end

local files = {}

return function(name)
  local file = type(name) == "string" and FILES[name]
  if not file then return nil end
  files[file] = files[file] or runtime.part(file)(runtime, shared)
  return files[file][name]
end
