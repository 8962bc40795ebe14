-- The procedures of a monitor job: `load` executes its files, `cycle` calls the hooks that the daemon names (lua/hooks.py
-- says how).  Loads when one is first begun.  The chunk takes the runtime and what procedures share.

local runtime, shared = ...
local raw, env, internals = runtime.raw, runtime.env, runtime.internals
local traced, with_headers = internals.traced, runtime.use("headers").with_headers
local attempt = shared.attempt
local collect, floor, format, next = raw.collectgarbage, raw.math.floor, raw.string.format, raw.next
local error, rawget, setmetatable, type = raw.error, raw.rawget, raw.setmetatable, raw.type

local OURS = "=?"                               -- the source of a stripped chunk
local OUT_OF_MEMORY = "not enough memory"       -- Lua's own text
local UNLOADED, LOAD = -1, "load"               -- of hooks.py, and all of its HOOKS
local HOOKS = { "before_fetch", "override_fetch", "after_fetch", "override_extract", "after_extract", "filter_item",
  "before_store", "before_notify", "before_webhook", "on_success", "on_error", "on_finally", "on_finished" }

local is_loaded = false
local loader                        -- the run that has begun to execute the files

local function present_loader() return loader and loader.ended == false and loader end

local function execute(run)
  if loader then runtime.use("loads").wait(present_loader) end
  if is_loaded then return end
  loader = run
  shared.execute()
  is_loaded = true
end

local function defined()
  if not is_loaded then return UNLOADED end
  local mask = 0
  for i = 1, #HOOKS do
    if type(rawget(env, HOOKS[i])) == "function" then mask = mask | 1 << i - 1 end
  end
  return mask
end

local function list_of(value) return type(value) == "table" and value or {} end

--
-- Each hook: its arguments, and how its result is used
--

-- Each returns whether the hook succeeded, the value, and for a failure its text and a traceback.
local call = {}

-- Returns where a function of the script begins.
local function place(f)
  local info = runtime.getinfo(f, "S")
  if info.what ~= "C" and info.source ~= OURS then return format("%s:%d", info.short_src, info.linedefined) end
end

-- Used for an error in what a hook has returned: where it returned is not known any more.
local function complain(f, expected, value)
  local at = place(f)
  error(format("%s%s, it returned a %s", at and at .. ": " or "", expected, type(value)), 0)
end

local function reported(ok, value, traceback)
  if ok then return true, value end
  return false, nil, value, traceback
end

local function plain(run, f, argument)
  return reported(attempt(run, f, argument, run.ctx))
end

function call.after_fetch(run, f, result)
  with_headers(list_of(result).response)
  return plain(run, f, result)
end

function call.override_extract(run, f, response)
  return plain(run, f, (with_headers(response)))
end

local function kept(f, item, ctx)
  local value = f(item, ctx)
  if value == true then return item end
  if value and type(value) ~= "table" then complain(f, "filter_item must return the item, true, false or nil", value) end
  return value or false
end

function call.filter_item(run, f, items)
  local verdicts, failures, problem, traceback = {}, 0, nil, nil
  for i = 1, #items do
    local ok, value, trail = attempt(run, kept, f, items[i], run.ctx)
    verdicts[i] = not ok or value
    if not ok then
      failures = failures + 1
      if failures == 1 then problem, traceback = value, trail end
    end
  end
  if failures > 1 then problem = format("%s (and %d more)", problem, failures - 1) end
  return failures == 0, verdicts, problem, traceback
end

-- An item as the webhook's JSON has it: with `change` its fields are a table, else at top level.  The members in the
-- metatable are read but are not in the JSON.
local function flattened(item)
  local flat, fields, matches = list_of(item.entry), list_of(item.fields), list_of(item.matches)
  if flat.change then
    flat.fields = fields
  else
    for name, value in next, fields do flat[name] = value end
  end
  flat.keywords = matches[1] ~= nil and matches or runtime.empty_array
  return setmetatable(flat, { __index = { fields = fields, matches = matches }, __metatable = false })
end

local function payload_text(f, payload, ctx)
  local value = f(payload, ctx)
  if not value then return nil end
  if type(value) ~= "table" then complain(f, "before_webhook must return a table or nil", value) end
  return runtime.use("json").json_encode(value)
end

function call.before_webhook(run, f, payload)
  local items = list_of(payload.items)
  for i = 1, #items do items[i] = flattened(items[i]) end
  return reported(attempt(run, payload_text, f, payload, run.ctx))
end

local function ended(ok, value, traceback)
  if ok then return true end
  return false, nil, value, traceback
end

function call.on_success(run, f) return ended(attempt(run, f, run.ctx)) end
function call.on_error(run, f, problem) return ended(attempt(run, f, problem, run.ctx)) end
call.on_finally = call.on_success
function call.on_finished(run, f) return ended(attempt(run, f)) end

--
-- ctx
--

-- Completes packed members of `ctx` when they are read.
local complete = {}

function complete.last_fetch(fetch)
  with_headers(fetch.response)
end

function complete.telemetry(telemetry)
  local map = {}
  for _, stage in next, list_of(telemetry.stages) do map[stage.name] = stage end
  telemetry.map = map
end

-- `packed`: by name, the members that are unpacked when a script first reads them.
local function new_ctx(given, packed)
  local worker_id = given.worker_id or 1
  given.worker_id, given.shared = nil, {}
  local function read(ctx, name)
    local value = runtime.decode(packed[name])[1]
    packed[name] = nil
    if type(value) == "table" and complete[name] then complete[name](value) end
    ctx[name] = value
    return value
  end
  return setmetatable(given, {
    __metatable = false,
    __index = function(ctx, name)
      if name == "worker_id" then return worker_id end
      return packed[name] and read(ctx, name)
    end,
    __newindex = function(ctx, name, value)
      if name == "worker_id" then error("ctx.worker_id is read-only", 2) end
      packed[name] = nil
      raw.rawset(ctx, name, value)
    end,
    __pairs = function(ctx)
      for name in next, packed do read(ctx, name) end
      local all = { worker_id = worker_id }
      for name, value in next, ctx do all[name] = value end
      return next, all, nil
    end,
  })
end

local function fill(run, argument, later)
  local ctx, packed = run.ctx, run.packed_ctx
  for name, text in next, later or {} do
    raw.rawset(ctx, name, text == "" and argument or nil)
    packed[name] = text ~= "" and text or nil
  end
end

--
-- The cycle
--

-- A hook is begun only once, also when the run ends meanwhile.
local function note(run, name)
  if name == "on_success" then run.announced = true
  elseif name == "on_error" then run.announced = false
  elseif name == "on_finally" then run.finished = true
  elseif name == "on_finished" then run.announced, run.finished = false, true end
end

local function load_files(run)
  local ok, problem, traceback = attempt(run, execute, run)
  if loader == run then loader = nil end
  run.unloaded = not ok and { problem, traceback } or nil
  return ended(ok, problem, traceback)
end

local function perform(run, name, argument)
  if name == LOAD then return load_files(run) end
  local f = rawget(env, name)
  if type(f) ~= "function" then return nil end
  note(run, name)
  local ok, value, problem, traceback = (call[name] or plain)(run, f, argument)
  if ok and value then return ok, value, nil, place(f) end
  if not ok and (traceback or "") == "" then
    local trace = runtime.use("trace")
    traceback = trace.text(trace.definition(f))
  end
  return ok, value, problem, traceback
end

local function ask(...)
  return runtime.call("_hook", defined(), floor(collect("count") * 1024), ...)
end

local function report(ok, ...)
  if ok == nil then return ask("absent") end
  return ask(ok and "ok" or "error", ...)
end

-- A result that the daemon refuses because it is too large is the hook's own error.
local function answered(run, ok, ...)
  local problem = ...
  if ok or type(problem) ~= "string" or problem == OUT_OF_MEMORY then return ok, ... end
  return traced(run, ask, "error", nil, problem)
end

local function conclude(run)
  if run.unloaded then return shared.fail(run, run.unloaded[1], run.unloaded[2]) end
  shared.succeed(run)
end

local procedures = {}

function procedures.load(run)
  shared.without_hooks(run, {})
  load_files(run)
  conclude(run)
end

function procedures.cycle(run, given)
  run.packed_ctx = {}
  run.ctx = new_ctx(list_of(given), run.packed_ctx)
  local ok, name, argument, later = traced(run, ask)
  while ok and name do
    fill(run, argument, later)
    ok, name, argument, later = answered(run, traced(run, report, perform(run, name, argument)))
  end
  if not ok then return internals.failed(run, name, run.frames) end
  conclude(run)
end

return procedures
