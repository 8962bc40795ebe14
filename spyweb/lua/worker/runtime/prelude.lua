-- The prelude runs first in a VM, in its real globals: it builds the script's own `_G` (`env`), keeps kills from being
-- swallowed, runs the procedures that the daemon names, and leaves nothing dangerous behind.
-- It is loaded stripped, so that no frame of ours has a line: that is how tracebacks and positions tell ours from the
-- script's.
-- It holds only what every run needs: a Lua endpoint has a VM for each request, and the prelude is much of its cost.
-- Files that are sure to be used with it are part of the same text, in `bundled` (vm.py), since loading a text has a cost too.
-- The rest loads when it is first looked up: in `runtime` (runtime.lua), which all of our files are given; in `internals`
-- (kills.lua), which few need; in the script's globals (globals.lua).
--
-- Its rules: an op passes through the script's coroutines and pcalls; a kill passes through everything; nothing that a
-- script yields is taken for an op or a result; what is counted belongs to a run and its chain, never to the VM.

local host, main_count, coroutine_count, is_fleeting = ...
local COLLECT_KB, COLLECT_GROWTH = 256, 1.1                     -- KB; when a VM's garbage is collected after a run
local WHY = 0                       -- the purpose of a call to the worker; runtime.lua has the others
local OVER_TIMEOUT = 6              -- of wire: of a branch, not of the run
local MAX_DEPTH = 150               -- of pcalls and coroutines; Lua has 200 C levels for a whole chain, and a kill needs some
local SUCCESS, MEMORY, REASON = 0, 5, 4096                      -- wire.Ended; bytes
local OUT_OF_MEMORY = "not enough memory"                       -- Lua's own text
local STEP_OP, STEP_END, STEP_STARVED = 0, 1, 3                 -- the kinds of result of a step (values.StepKind)

local collect, load, next, pcall, rawequal, rawget = collectgarbage, load, next, pcall, rawequal, rawget
local setmetatable, xpcall, resume = setmetatable, xpcall, coroutine.resume

-- The globals of our own parts: Lua's, without the forbidden ones.  lupa looks up the global `debug` unprotected
-- whenever it calls Lua: it must be there, and must not be a table.
local raw, sethook, getinfo, registered = _G, debug.sethook, debug.getinfo, package.loaded
local set_type_metatable = debug.setmetatable
raw._G, raw.dofile, raw.io, raw.loadfile, raw.package, raw.print, raw.python, raw.require, raw.warn = nil
raw.os = { time = os.time, date = os.date, clock = os.clock, difftime = os.difftime }
raw.debug = false
for name in next, registered do registered[name] = nil end

local env = {
  assert = assert, error = error, ipairs = ipairs, pairs = pairs, rawequal = rawequal, select = select,
  tonumber = tonumber, type = type, _VERSION = _VERSION,
}
env._G = env

local OP = {}                       -- the first value of a yield that is an op; no script can come by it
local PARK = {}                     -- the same of a yield that waits for branches
local runs = {}                     -- id → run
local settled = 0                   -- KB in use after the last full collection

-- The step in progress: `run`, the run being stepped; `killed`, why it must end (wire.Why); `depth`, of the protected calls
-- and coroutines along the chain now running; `starved`, the wrapped coroutine in which a memory error began;
-- `last_ended` anchors the coroutine that ended last: a limit may be arming it at this moment.  And `virtual`, by how many
-- seconds the time of a test is ahead, where it is virtual; `whole`, while no kill may interrupt; `seed`, which begins random numbers anew.
local now = { depth = 0, starved = false }
local waiting = setmetatable({}, { __mode = "k" })  -- coroutines that wait for an op, and the runs' own: not the script's to resume

--
-- Other files of ours, loaded when first used
--

local parts = {}

local function fetch(name)
  local text = host(name)
  if text == 0 then                 -- there is no room for it
    collect()
    text = host(name)
  end
  if text == 0 then raw.error(OUT_OF_MEMORY, 0) end
  return text
end

local function part(name)
  local f = bundled[name]           -- it came with the prelude, to be used once
  bundled[name] = nil
  return f or load(fetch(name), "=?", "b", raw)
end

local internals, runtime                   -- for our own parts: what only a few of them may have, and all else

local function use(name)
  local functions = parts[name] or part(name)(runtime, internals)
  parts[name] = functions
  return functions
end

--
-- Kills
--

local function hook()
  if now.whole then return end
  if not now.killed then
    local why = host(WHY)
    if now.run.last_branch and (why == 0 or why == OVER_TIMEOUT) then why = use("branches").look_again() end
    if why == 0 then return end
    now.killed = why
  end
  use("kills").stop()
end

local function restore(d, ...)
  now.depth, now.starved = d, false
  if now.killed then use("kills").stop() end
  return ...
end

-- Where memory or C stack are short there is no traceback, and that must not be what ends the run.
local function note_frames(value)
  local ok, kills = pcall(use, "kills")
  if ok then kills.note_frames(value) end
  return value
end

-- As pcall, and leaves the traceback of a failure in run.frames: not of a memory error, for which Lua calls no handler.
local function traced(run, f, ...)
  run.trail, run.frames, run.called = nil, nil, f
  return restore(0, xpcall(f, note_frames, ...))
end

-- Words a failure; when memory ran out it only notes that, since there may be none for more.
local function failed(run, value, frames)
  if value ~= OUT_OF_MEMORY then return use("ending").failed(run, value, frames) end
  run.ended = MEMORY
end

--
-- Steps
--

local function needs_aftermath(run)
  return run.defers[1] or run.ended ~= SUCCESS and rawget(env, "on_error") ~= nil
    or rawget(env, "on_success") ~= nil or rawget(env, "on_finally") ~= nil
end

local function body(run)
  local arguments, count = runtime.decode(run.arguments)
  run.arguments = nil
  run.procedure(run, raw.table.unpack(arguments, 1, count))
  if run.ctx and run.ended ~= MEMORY and needs_aftermath(run) then use("ending").aftermath(run) end
end

local function new_coroutine(f)
  local co = raw.coroutine.create(f)
  sethook(co, hook, "", main_count)  -- registered; where it can be armed from outside, off
  waiting[co] = true
  return co
end

local function spawn(run, f)
  local co = new_coroutine(f)
  run.co, run.depth, run.is_to_start = co, 0, true
  return raw.string.format("%p", co)
end

local function begin(id, name, arguments)
  local file = name == "request" and "server" or name == "run" and "run"
  local procedure = file and use(file)[name] or use("procedures")(name) or raw.error("there is no procedure " .. name, 0)
  local run = {
    id = id, procedure = procedure, arguments = arguments, defers = {}, deferred = 0, ended = false, is_bare = false,
    -- all fields at once: a table that grows to this size by itself takes longer
    co = nil, depth = nil, is_to_start = nil, called = nil, ctx = nil, announced = nil, finished = nil, packed = nil,
    reason = nil, traceback = nil,
  }
  runs[id] = run
  return spawn(run, body)
end

-- The garbage of thousands of idle VMs adds up; a large VM is left to Lua's own pace.
local function collect_if_grown()
  if is_fleeting then return end
  local used = collect("count")
  if next(runs) or used > COLLECT_KB or used < settled * COLLECT_GROWTH then return end
  collect()
  settled = collect("count")
end

local function ended(run)
  now.last_ended = run.co
  runs[run.id] = nil
  if not run.discard then collect_if_grown() end
  local reason, traceback, scalar = run.reason, run.traceback, nil
  if run.is_scalar and run.ended == SUCCESS then scalar = run.shown end
  if reason ~= "" and (#reason > REASON or raw.string.find(reason, "^%s") or raw.string.find(reason, "\n", 1, true)) then
    reason, traceback = use("ending").worded(reason, traceback)
  end
  return STEP_END, run.ended, reason, traceback, run.packed, run.discard or false, scalar
end

-- Returns the result of a step.  Nothing is loaded when there may be no memory for it: the result is then returned once
-- there is.
local function step_result(run, ok, first, ...)
  run.depth, now.depth = now.depth, 0
  if now.killed or not (ok or run.rescuing or first == OUT_OF_MEMORY) then
    if run.branches then return use("branches").step_result(run, ok, first) end
    local is_there, kills = pcall(use, "kills")
    if is_there and kills.have_room(run) then return kills.step_result(run, ok, first) end
    run.ended, run.unreported, run.value, run.is_to_start = MEMORY, true, first, true
    return STEP_STARVED, 0
  end
  if ok and rawequal(first, OP) then return STEP_OP, ... end
  if run.branches then return use("branches").step_result(run, ok, first, ...) end
  if not ok and not run.rescuing then
    run.ended, run.discard, run.fallen = MEMORY, true, run.is_bare and run.co
    run.is_bare = false
  end
  if run.ended == MEMORY and not run.rescuing then
    run.is_to_start = true
    return STEP_STARVED, 0
  end
  return ended(run)
end

local function step(id, ...)
  local run = runs[id]
  now.run, now.depth = run, run.depth
  if not run.is_to_start then return step_result(run, resume(run.co, ...)) end
  if run.ended == MEMORY then
    if not run.rescuing then return use("kills").say_where(run) end
    now.last_ended = nil                -- it holds much of the memory
    collect()
  end
  run.is_to_start = false
  return step_result(run, resume(run.co, run))
end

--
-- The VM
--

-- Compiles a file: the first is the script, further ones are kept after it.  Without a name it is the worker's own bytecode.
local function compile(source, name)
  local f, message
  if name then
    f, message = part("compile")(runtime).compile(source, "@" .. name)
  else
    f = load(source, nil, "b", env)
  end
  if runtime.script then
    runtime.more = runtime.more or {}
    runtime.more[#runtime.more + 1] = f
  else
    runtime.script = f or false
  end
  collect_if_grown()                -- much of what there is by now was needed only once
  return message
end

-- Closing a VM holds the lock that all threads of the worker share, so large values are freed before, in here.
local function empty()
  for key in next, env do env[key] = nil end
  setmetatable(env, nil)
  internals.string_meta.__index = nil
  set_type_metatable(next, nil)     -- the fields of `log`
  for key in next, runtime do runtime[key] = nil end
  for key in next, internals do internals[key] = nil end
  runs, now, parts, internals, runtime = nil, nil, nil, nil, nil
  collect()
end

-- What the worker rarely asks for.
local function control(what, ...)
  if what == "kill" then return use("kills").kill(...) end
  if what == "turn" or what == "next" then return use("branches")[what](...) end
  if what == "empty" then return empty() end
  collect()
end

local string_meta = raw.getmetatable("")

-- Finds a name that is not there yet: a global of the script, or a member that one of our own files defines.
local GLOBALS = {
  __index = function(_, name) return use("globals").get(name) end,
  __newindex = function(_, name, value) return use("globals").set(name, value) end,
  __pairs = function() return use("globals").pairs() end,
}
local RUNTIME = { __index = function(_, name) return use("runtime").find(name) end }
local INTERNALS = { __index = function(_, name) return use("kills")[name] end }

internals = setmetatable({
  now = now, OP = OP, PARK = PARK, waiting = waiting, runs = runs, hook = hook, sethook = sethook, host = host, fetch = fetch,
  string_meta = string_meta, parts = parts, traced = traced, restore = restore, failed = failed, use = use,
  ended = ended, step_result = step_result, spawn = spawn, new_coroutine = new_coroutine, main_count = main_count,
  needs_aftermath = needs_aftermath, coroutine_count = coroutine_count,
  MAX_DEPTH = MAX_DEPTH, set_type_metatable = set_type_metatable,
}, INTERNALS)

runtime = setmetatable({
  env = env, raw = raw, internals = internals, getinfo = getinfo, use = use, part = part,
  script = false, more = false, closes = false, has_run = false, loader = false, whole = false, tasks = false, given = false, agent = false,
}, RUNTIME)

-- The methods of strings are those of the original `string`.
function string_meta.__index(_, name)
  string_meta.__index = use("standard").string
  return string_meta.__index[name]
end
string_meta.__metatable = false

runtime.decode = part("codec")(runtime)
setmetatable(env, GLOBALS)
if not is_fleeting then collect("restart") end
return compile, begin, step, control
