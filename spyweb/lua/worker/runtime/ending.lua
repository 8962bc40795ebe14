-- Ends a run that has failed, was skipped, or has hooks or deferred functions: words the failure, calls the hooks, then what was
-- deferred.  Loads when a run first ends so.  The chunk takes the runtime and returns a table of functions.

local runtime = ...
local raw, env, internals = runtime.raw, runtime.env, runtime.internals
local now, traced, use = internals.now, internals.traced, runtime.use
local pcall, rawget, rawset, type, tostring = raw.pcall, raw.rawget, raw.rawset, raw.type, use("values").tostring
local find, format, gsub, sub = raw.string.find, raw.string.format, raw.string.gsub, raw.string.sub
local getmetatable, next, rawequal, close = raw.getmetatable, raw.next, raw.rawequal, raw.coroutine.close
local concat, sort = raw.table.concat, raw.table.sort

local SUCCESS, CANCELLED, STOPPED, ERROR, SKIPPED = 0, 3, 4, 6, 9 -- wire.Ended
local OUT_OF_MEMORY = "not enough memory"                       -- Lua's own text
local NIL_GLOBAL = "a nil value (global '"                      -- in a text of Lua's
local LOG_LINE, REASON = 16384, 4096                            -- bytes, wire.LOG_LINE
local MEMBERS, LETTERS = 8, 80                                  -- of an error object, and of each text in it

local ending = {}

local function brief(value)
  local kind = type(value)
  if kind == "string" then return '"' .. gsub(sub(value, 1, LETTERS), '[%c"\\]', "?") .. (#value > LETTERS and "..." or "") .. '"' end
  if kind == "number" or kind == "boolean" then return tostring(value) end
  return "<" .. kind .. ">"
end

local function label(key)
  if type(key) == "string" and #key <= LETTERS and find(key, "^[%a_][%w_]*$") then return key end
  return "[" .. brief(key) .. "]"
end

-- Shows some members of a table, on one line.  They are read raw: no metamethod runs.
local function contents(value)
  local shown, more = {}, ""
  for key, item in next, value do
    if #shown == MEMBERS then
      more = ", ..."
      break
    end
    shown[#shown + 1] = label(key) .. " = " .. brief(item)
  end
  sort(shown)
  return "{" .. concat(shown, ", ") .. more .. "}"
end

-- Adds the known cause to an error about nil: a missing module, or why a template has no text.
local function explained(text)
  if find(text, NIL_GLOBAL, 1, true) then text = use("absent").explain(text) end
  local why = now.run.unrendered
  if not why or find(text, why, 1, true) or not (find(text, "a nil value", 1, true) or find(text, "got n[io]")) then return text end
  return format("%s (template.render: %s)", text, why)
end

function ending.text_of(value)
  local kind = type(value)
  if kind == "string" then return explained(value) end
  if kind == "number" then return tostring(value) end
  if kind == "table" then
    local meta = getmetatable(value)
    if type(meta) == "table" and rawget(meta, "__tostring") then
      local ok, text = pcall(tostring, value)
      if now.killed then internals.stop() end
      if ok then return text end
    end
    local message = rawget(value, "message")
    if type(message) == "string" then return message end
    local ok, text = pcall(contents, value)
    if now.killed then internals.stop() end
    if ok then return "(error object is a table value: " .. text .. ")" end
  end
  return format("(error object is a %s value)", kind)
end

local text_of = ending.text_of

-- Sets the text of a failure, and its frames.  When a tail call of one of ours has replaced the script's only frame, the
-- text has no position: that of what the script called last is shown.
local function located(run, value, frames)
  local text = text_of(value)
  if frames and frames[1] then return text, frames end
  frames = use("trace").definition(run.called)
  if frames and type(value) == "string" and not find(value, "^[^\n]-:%d+: ") then
    text = use("trace").position(frames) .. text
  end
  return text, frames
end

-- Logs the error of a call that the run outlives, and returns its text.
function ending.log_failure(run, label, value)
  local text, frames = text_of(value), nil
  if value == OUT_OF_MEMORY then
    run.discard = true
    frames = run.frames or use("trace").definition(run.called)
  else
    text, frames = located(run, value, run.frames)
  end
  runtime.emit("error", format("%s: %s\n%s", label, text, use("trace").text(frames)))
  return text
end

local function call_logged(run, label, f, ...)
  local ok, value = traced(run, f, ...)
  if not ok then ending.log_failure(run, label, value) end
end

local function call_hook(run, name, ...)
  local f = rawget(env, name)
  if type(f) == "function" then call_logged(run, name, f, ...) end
end

function ending.run_defers(run)
  local defers = run.defers
  run.deferring = not run.is_patient
  while defers[1] do
    local f = defers[#defers]
    defers[#defers] = nil
    call_logged(run, "defer", f)
  end
  run.deferring = false
end

function ending.failed(run, value, frames)
  local text, known = located(run, value, frames)
  run.ended, run.value, run.reason, run.traceback = ERROR, value, text, use("trace").text(known)
end

-- The script has returned its error and not raised it: a value that is no table is shown as `tostring` shows it.
function ending.returned(run, value)
  run.called = nil
  ending.failed(run, value, nil)
  if type(value) ~= "table" then run.reason = tostring(value) end
end

-- What a script calls as `skip`: returns what the run returns to say that there was nothing to do.  What an earlier run
-- was given counts for nothing.
function ending.skip(reason)
  local run = now.run
  if reason ~= nil and type(reason) ~= "string" then runtime.bad_argument(1, "skip", "string", reason) end
  if not run.may_skip then internals.fail("skip is for the run of a job, not for a hook, an endpoint or a task, which has run_if") end
  run.skip, run.skip_reason = { skipped = reason or "" }, reason or ""
  return run.skip
end

-- Of the hooks only on_finally follows.
function ending.skipped(run)
  run.ended, run.reason, run.traceback, run.announced = SKIPPED, run.skip_reason, "", false
end

-- Settles the error of the script's call, after closing what it left open in the coroutine that it ended.
local function settle(run)
  local co, value, frames = run.fallen, run.value, run.frames
  run.fallen = nil
  if runtime.closes then
    local _, last = internals.unless_killed(close(internals.hooked(co)))
    if not rawequal(last, value) then value, frames = last, nil end
  end
  internals.failed(run, value, frames)
end

-- Each hook is begun only once, also when the run ends meanwhile.
function ending.aftermath(run)
  local ctx = run.ctx
  if run.fallen then settle(run) end
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
  ending.run_defers(run)
end

-- Words the end for lack of memory: for a protected call, only the function called is still known.
function ending.starved(run)
  local inner = now.starved and internals.add_frames({}, now.starved) or {}
  local frames = run.fallen and internals.add_frames(inner, run.fallen)
  now.starved, run.trail, run.fallen = false, nil, nil
  run.value, run.reason = OUT_OF_MEMORY, use("trace").position(frames) .. OUT_OF_MEMORY
  run.traceback = use("trace").text(frames or use("trace").definition(run.called) or use("trace").definition(rawget(env, "run") or runtime.script))
end

-- The reason of a run is one line; the whole of a longer text stands before its traceback.
function ending.worded(text, traceback)
  text = sub(text, find(text, "%S") or 1)
  local newline = find(text, "\n", 1, true)
  if newline and sub(traceback, 1, #text) ~= text then
    traceback = sub(text, 1, LOG_LINE) .. (traceback == "" and "" or "\n" .. traceback)
  end
  return sub(text, 1, newline and newline < REASON and newline - 1 or REASON), traceback
end

-- Words the end of a killed run: why, and where it was.
function ending.killed(run, ended, text, frames)
  run.ended, run.reason, run.traceback = ended, use("trace").position(frames) .. text, use("trace").text(frames)
  run.value = run.reason
  run.may_retry = run.may_retry and ended ~= CANCELLED and ended ~= STOPPED
end

-- Logs that the hooks took too long.  Not by runtime.emit: no hook may run any more.
function ending.overran(run, frames)
  internals.emit("error", format("%s: what followed the end of the run (on_error, on_finally, deferred functions) took too long\n%s",
    run.reason, use("trace").text(frames)))
end

return ending
