-- What procedures share that go on when a script has failed.  Loaded with the first of them; the chunk takes the kit.

local kit = ...
local border = kit.border
local traced, use = border.traced, border.use
local raise = kit.raw.error

local OUT_OF_MEMORY = "not enough memory"       -- Lua's own text

local attempts = {}

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

-- Calls f, then what it has deferred.  Gives true and its first result; or false, the error's text and a traceback.
function attempts.attempt(run, f, ...)
  return after(run, traced(run, f, ...))
end

function attempts.fail(run, text, traceback)
  run.ended, run.value, run.reason, run.traceback, run.ctx = 1, text, text, traceback, nil
end

return attempts
