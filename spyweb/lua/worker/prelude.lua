-- The prelude runs first in a VM, in its real globals: it builds the script's own `_G` (`env`), makes host functions yield
-- to the daemon, keeps kills from being swallowed, runs the procedures that BEGIN names, and leaves nothing dangerous behind.
-- Loaded stripped, so that no frame of ours has a line: that is how tracebacks and positions tell ours from the script's.
--
-- What it holds to: an op passes through the script's coroutines and pcalls; a kill passes through everything; nothing
-- that a script yields is taken for an op or a result; what is counted belongs to a run and its chain, never to the VM.

local tick, emit, clock, part, ops, facts, main_count, coroutine_count, is_fleeting = ...
collectgarbage("stop")              -- until all is in place: there is next to nothing to be found
local ipairs = ipairs

local G = _G
local MAX_DEPTH = 150               -- of pcalls and coroutines; Lua has 200 C levels for a whole chain, and a kill needs some
local LOG_LINE, REASON = 16384, 4096                            -- bytes, wire.LOG_LINE
local TIDY_KB, TIDY_GROWTH = 256, 1.1                           -- 60 µs once in two small runs, for 25 KB less a VM
local FREE_KB = 256                 -- that a VM for a single run may allocate before its garbage is looked for
local PLAIN, PACKED, RAISE = 0, 1, 2                            -- wire.Form
local SUCCESS, MEMORY = 0, 6                                    -- wire.Ended
local OUT_OF_MEMORY = "not enough memory"                       -- Lua's own text
local WHY = { "cpu limit exceeded", "timed out", "cancelled", "stopped", OUT_OF_MEMORY }  -- by wire.Why
local ENDED = { 2, 3, 4, 5, MEMORY }                            -- wire.Ended by wire.Why
local TOLD_OP, TOLD_END, TOLD_AFTERMATH, TOLD_STARVED, TOLD_SEQUEL = 0, 1, 2, 3, 4  -- what a step tells the worker

local raw = {
  string = string, table = table, math = math, utf8 = utf8, coroutine = coroutine,
  os = { time = os.time, date = os.date, clock = os.clock, difftime = os.difftime },
}
for _, name in ipairs { "assert", "collectgarbage", "error", "getmetatable", "ipairs", "load", "next", "pairs", "pcall",
  "rawequal", "rawget", "rawlen", "rawset", "select", "setmetatable", "tonumber", "tostring", "type", "xpcall" } do
  raw[name] = G[name]
end

local raise, next, pcall, xpcall, select, type = error, next, pcall, xpcall, select, type
local rawequal, rawget, rawset, load, setmetatable, collect = rawequal, rawget, rawset, load, setmetatable, collectgarbage
local create, resume, yield, status = coroutine.create, coroutine.resume, coroutine.yield, coroutine.status
local running, isyieldable = coroutine.running, coroutine.isyieldable
local getinfo, sethook = debug.getinfo, debug.sethook
local format, find, gmatch, match, sub = string.format, string.find, string.gmatch, string.match, string.sub
local unpack = table.unpack
local string_meta = getmetatable("")

local OP = {}                       -- the first value of a yield that is an op; no script can come by it
local env = {}
local kit = { env = env, raw = raw, raise = raise, clock = clock, getinfo = getinfo, ops = ops, facts = facts }
local encode, decode

local runs = {}                     -- id → run
local last_ended                    -- anchors the coroutine that ended last: a limit may be arming it at this moment

-- The step in progress: `run`, the run being stepped; `killed`, why it must end (wire.Why); `depth`, of the protected calls
-- and coroutines along the chain now running; `starved`, the wrapped coroutine in which a memory error began.
local now = { depth = 0, starved = false }
local waiting = setmetatable({}, { __mode = "k" })  -- coroutines that wait for an op, and the runs' own: not the script's to resume

--
-- Where it happened
--

-- Other files of ours, loaded when first used.
local parts = {}

local function use(name)
  local functions = parts[name] or kit.part(name)(kit)
  parts[name] = functions
  return functions
end
kit.use = use

-- A function of another file.  It stays good when a script keeps it in a local before that file is loaded.
function kit.later(file, name)
  return function(...) return use(file)[name](...) end
end
kit.bad_argument = kit.later("failures", "bad_argument")

local function trace() return use("trace") end

-- Raises at the line of the script that called us.
local function fail(message) raise(message, trace().level()) end

-- Where memory or C stack are short there is no traceback, and that must not be what ends the run.
local function add_frames(lines, co)
  local ok, functions = pcall(trace)
  if ok then pcall(functions.add, lines, co) end
  return lines
end

--
-- Kills
--

-- Raises what ends the step.  Where it first did is kept: further out only the rest of the chain is to be seen.
local function stop()
  local run = now.run
  if run and not run.stopped then run.stopped = { co = running(), frames = add_frames({}, running()) } end
  raise(WHY[now.killed], 0)
end

local function hook()
  if not now.killed then
    local why = tick()
    if why == 0 then return end
    now.killed = why
  end
  stop()
end

local function hooked(co)
  sethook(co, hook, "", coroutine_count)
  return co
end

local function deeper(d)
  if d >= MAX_DEPTH then fail("too many nested protected calls or coroutines") end
  now.depth = d + 1
end

local function restore(d, ...)
  now.depth, now.starved = d, false
  if now.killed then stop() end
  return ...
end

function env.pcall(f, ...)
  local d = now.depth
  deeper(d)
  return restore(d, pcall(f, ...))
end

function env.xpcall(f, handler, ...)
  local d = now.depth
  deeper(d)
  return restore(d, xpcall(f, function(value)
    if now.killed then return value end
    return handler(value)
  end, ...))
end

local function unless_killed(...)
  if now.killed then stop() end
  return ...
end

--
-- Ops
--

local SCALAR = { ["nil"] = true, boolean = true, number = true, string = true }

local function outgoing(...)
  local a, b, c = ...
  if not (SCALAR[type(a)] and SCALAR[type(b)] and SCALAR[type(c)]) then return PACKED, encode(...) end
  for i = 4, select("#", ...) do
    if not SCALAR[type((select(i, ...)))] then return PACKED, encode(...) end
  end
  return PLAIN, ...
end

local function settle(form, ...)
  if now.killed then stop() end
  if form == PLAIN then return ... end
  if form == RAISE then fail((...)) end
  local values, count = decode((...))
  if form == PACKED then return unpack(values, 1, count) end
  raise(values[1], 0)
end

local function call(name, ...)
  if now.killed then stop() end
  if not isyieldable() then
    fail(name .. " can't be called inside a table.sort comparator or a string.gsub callback")
  end
  if now.run.deferring then fail(name .. " can't be called inside a deferred function") end
  return settle(yield(OP, name, outgoing(...)))
end
kit.call = call

local function op(name)
  return function(...) return call(name, ...) end
end
kit.op = op

-- One line to the daemon's log.  Waits while too many are under way; a kill ends the wait, hence the hook.
function kit.emit(level, text)
  if #text > LOG_LINE then text = format("%s... (%d bytes cut)", sub(text, 1, LOG_LINE), #text - LOG_LINE) end
  if emit(level, text) ~= 0 then hook() end
end

--
-- What the script sees of the rest of Lua
--

for _, name in ipairs { "assert", "error", "ipairs", "pairs", "rawequal", "select", "tonumber", "type" } do
  env[name] = G[name]
end
env._G, env._VERSION = env, _VERSION

-- The rest is not there yet, and few scripts need much of it: a global is made when it is first looked up, until that has
-- been in vain too often, or all of them are asked for: then `_G` becomes a table like any other.  Whatever can look behind
-- a metatable asks for that first (kit.complete).
local taken = {}                    -- names that the script has assigned meanwhile, or been given: they stay its own
local patience = 64                 -- lookups in vain, and names assigned
local GLOBALS = {}

-- Which file makes what: it gives a function that takes the name and gives the value.
local HOMES = "\n\z
  library: bit32, coroutine, loadstring, math, os, state, string, table, unpack, utf8,\n\z
  log: log, print,\n\z
  tostring: tostring,\n\z
  later: JSON_EMPTY_ARRAY, copy, deep_copy, defer, dump, json_decode, json_encode, require,\n\z
  http: http_get, http_multipart, http_post, http_request,\n\z
  engine: engine, env_get,\n\z
  access: getmetatable, next, rawget, rawlen, rawset,\n\z
  absent: cdp, cmd, exec, file, task, template, workflow,\n"

local function home_of(name)
  return find(HOMES, " " .. name .. ",", 1, true) and match(HOMES, "\n(%l+):[^\n]* " .. name .. ",")
end

-- Those for HTTP have something on top.
local function is_plain_op(name)
  return find(ops, "\n" .. name .. "\n", 1, true) and not find(name, "^http_")
end

local function new_global(name)
  if is_plain_op(name) then return op(name) end
  local file = home_of(name)
  if file then return use(file)(name) end
end

local function complete_globals()
  if not taken then return end
  string_meta.__index = use("library")("string")
  local globals = {}
  for name in gmatch(ops, "%f[^\n](%a[%w_]*)\n") do globals[name] = op(name) end  -- `state.*`: state.lua
  for file, names in gmatch(HOMES, "(%l+): ([^\n]*)") do
    local make = use(file)
    for name in gmatch(names, "[%w_]+") do
      if not taken[name] and (file == "http" or not globals[name]) then globals[name] = make(name) end
    end
    parts[file] = nil               -- it has made what it can
  end
  setmetatable(env, nil)
  for name, value in next, globals do
    if not taken[name] and rawget(env, name) == nil then env[name] = value end
  end
  taken = nil
end
kit.complete = complete_globals

local function lose_patience()
  patience = patience - 1
  if patience == 0 then complete_globals() end
end

function GLOBALS.__index(_, name)
  if type(name) ~= "string" or taken[name] or not find(name, "^%a[%w_]*$") then return lose_patience() end
  if home_of(name) == "access" then
    complete_globals()
    return rawget(env, name)
  end
  local value = new_global(name)
  if value == nil then return lose_patience() end
  taken[name] = true
  rawset(env, name, value)
  return value
end

function GLOBALS.__newindex(_, name, value)
  if name == nil or name ~= name then raise(name == nil and "index is nil" or "index is NaN", 2) end
  taken[name] = true
  rawset(env, name, value)
  lose_patience()
end

function GLOBALS.__pairs()
  complete_globals()
  return next, env, nil
end

-- __gc is refused: no hook runs in a finalizer, so nothing could stop one.  __close may be had: it runs in a coroutine,
-- where hooks reach it.  __metatable too: nothing of ours asks a script's table for its metatable.
function env.setmetatable(object, meta)
  if type(meta) == "table" and rawget(meta, "__gc") ~= nil then fail("__gc is not available") end
  if taken and rawequal(object, env) then complete_globals() end
  return setmetatable(object, meta)
end
kit.pcall, kit.setmetatable = env.pcall, env.setmetatable

function env.collectgarbage(option)
  return option == "count" and collect("count") or 0
end

-- Not kept: it is used once for most VMs.
function kit.compile(source, chunkname) return kit.part("compile")(kit).compile(source, chunkname) end
function env.load(...) return kit.part("compile")(kit).load(...) end
kit.load = env.load

--
-- Steps
--

-- Of a failure in the coroutine: behind the frames of those further in that it came through.
local function frames_of(run, value, co)
  local trail = run.trail
  local inner = now.killed and run.stopped or trail and rawequal(trail.value, value) and trail
  local frames = inner and inner.frames or {}
  return inner and inner.co == co and frames or add_frames(frames, co)
end

local function note_frames(value)
  local run = now.run
  if not (now.killed and run.frames) then run.frames = frames_of(run, value, running()) end
  return value
end

-- As pcall, and leaves the traceback of a failure in run.frames: not of a memory error, for which Lua calls no handler.
local function traced(run, f, ...)
  run.trail, run.frames, run.called = nil, nil, f
  return restore(0, xpcall(f, note_frames, ...))
end

-- Where it was memory, only notes that: there may be none to say more with.
local function failed(run, value, frames)
  if value ~= OUT_OF_MEMORY then return use("ending").failed(run, value, frames) end
  run.ended = MEMORY
end

local function has_hook(name) return rawget(env, name) ~= nil end

local function needs_farewell(run)
  return run.defers[1] or run.ended ~= SUCCESS and has_hook("on_error") or has_hook("on_success") or has_hook("on_finally")
end

local function bid_farewell(run) use("ending").farewell(run) end

local function body(run)
  local arguments, count = decode(run.arguments)
  run.arguments = nil
  run.procedure(run, unpack(arguments, 1, count))
  if run.ctx and run.ended ~= MEMORY and needs_farewell(run) then bid_farewell(run) end
end

local function spawn(run, f)
  local co = create(f)
  sethook(co, hook, "", main_count)  -- registered; where it can be armed from outside, off
  waiting[co] = true
  run.co, run.depth = co, 0
  return format("%p", co)
end

local function procedure_named(name)
  if name == "run" or name == "trigger" then return use("run")[name] end
  return use("procedures")(name) or raise("there is no procedure " .. name, 0)
end

local function begin(id, procedure, arguments)
  local f = procedure_named(procedure)
  local run = { id = id, procedure = f, arguments = arguments, defers = {}, deferred = 0, ended = false, is_bare = false }
  runs[id] = run
  return spawn(run, body)
end

-- The reason of a run is one line; the whole of a longer text stands before its traceback.
local function worded(run)
  local text, traceback = run.reason, run.traceback
  text = sub(text, find(text, "%S") or 1)
  local newline = find(text, "\n", 1, true)
  if newline and sub(traceback, 1, #text) ~= text then
    traceback = sub(text, 1, LOG_LINE) .. (traceback == "" and "" or "\n" .. traceback)
  end
  return sub(text, 1, newline and newline < REASON and newline - 1 or REASON), traceback
end

local settled = 0                   -- KB in use after the last full collection

-- What thousands of idle VMs hold on to adds up; a large one is left to Lua's own pace.
local function tidy_up()
  if is_fleeting then return end
  local used = collect("count")
  if next(runs) or used > TIDY_KB or used < settled * TIDY_GROWTH then return end
  collect()
  settled = collect("count")
end

local function ended(run)
  last_ended = run.co
  runs[run.id] = nil
  if not run.discard then tidy_up() end
  local scalar
  if run.is_scalar and run.ended == SUCCESS then scalar = run.result end
  local reason, traceback = worded(run)
  return TOLD_END, run.ended, reason, traceback, run.packed, run.discard or false, scalar
end

-- After a kill or a memory error: hooks and deferred functions have a coroutine and a budget of their own.
local function rescue(run)
  run.discard, run.packed, run.deferring = true, nil, false
  if run.rescuing or not run.ctx or not needs_farewell(run) then return ended(run) end
  run.rescuing, last_ended = true, run.co
  return TOLD_AFTERMATH, spawn(run, bid_farewell), run.ended
end

local function end_killed(run, frames)
  local why = now.killed
  frames = frames or run.frames or run.stopped and run.stopped.frames
  now.killed, run.frames, run.stopped = nil, nil, nil
  if run.rescuing then
    use("ending").overran(run, frames)
    return ended(run)
  end
  use("ending").killed(run, ENDED[why], WHY[why], frames)
  return rescue(run)
end

-- The call of the script was not protected, and has ended the coroutine.  What follows needs another, on the same budget.
local function fell(run, value)
  run.is_bare = false
  if now.killed then return end_killed(run, frames_of(run, value, run.co)) end
  run.fallen = run.co
  if value == OUT_OF_MEMORY then
    run.ended = MEMORY
    return TOLD_STARVED, 0
  end
  run.value, run.frames, last_ended = value, frames_of(run, value, run.co), run.co
  return TOLD_SEQUEL, spawn(run, bid_farewell)
end

local function told(run, ok, first, ...)
  run.depth, now.depth = now.depth, 0
  if not ok and run.is_bare then return fell(run, first) end
  if now.killed then return end_killed(run) end
  if ok and rawequal(first, OP) then return TOLD_OP, ... end
  if not ok and not run.rescuing then
    failed(run, first, nil)
    run.discard = true
  end
  if run.ended == MEMORY and not run.rescuing then return TOLD_STARVED, 0 end
  return ended(run)
end

local function start(id)
  local run = runs[id]
  now.run, now.depth = run, 0
  if run.ended == MEMORY then
    if not run.rescuing then        -- the VM has been given room, to say where there was not enough
      use("ending").starved(run)
      return rescue(run)
    end
    last_ended = nil                -- it holds what it could not get enough of
    collect()
  end
  return told(run, resume(run.co, run))
end

local function step(id, ...)
  local run = runs[id]
  now.run, now.depth = run, run.depth
  return told(run, resume(run.co, ...))
end

-- Ends a run that waits for an op.
local function kill(id, why)
  local run = runs[id]
  now.run, now.depth, now.killed = run, run.depth, why
  sethook(run.co, hook, "", 1)
  return told(run, resume(run.co))
end

--
-- The VM
--

-- The first is the script; its further files are kept behind it.  Without a name it is bytecode, of the worker's own.
local function compile(source, name)
  local f, message
  if name then
    f, message = kit.compile(source, "@" .. name)
  else
    f = load(source, nil, "b", env)
  end
  if kit.script then
    kit.more = kit.more or {}
    kit.more[#kit.more + 1] = f
  else
    kit.script = f
  end
  tidy_up()                         -- a fifth of what there is by now was needed only once
  return message
end

function kit.part(name)
  local code = part(name)
  if code == 0 then raise(OUT_OF_MEMORY, 0) end
  return load(code, "=?", "b", raw)
end

-- Closing a VM holds the lock that all threads of the worker share, so what is large goes before, in here.
local function empty()
  for key in next, env do env[key] = nil end
  setmetatable(env, nil)
  string_meta.__index = nil
  runs, now, last_ended, encode, decode, parts, taken = nil, nil, nil, nil, nil, nil, nil
  for key in next, kit do kit[key] = nil end
  collect()
end

kit.border = {                      -- for our own parts only
  now = now, OP = OP, MAX_DEPTH = MAX_DEPTH, waiting = waiting, hook = hook, hooked = hooked, sethook = sethook,
  fail = fail, stop = stop, traced = traced, trace = trace, failed = failed, add_frames = add_frames, emit = emit,
  unless_killed = unless_killed, use = use,
}

-- lupa looks up the global `debug` unprotected whenever it calls Lua: it must be there, and no table.
local loaded = package.loaded
for name in next, loaded do loaded[name] = nil end
for name in next, G do G[name] = nil end
G.debug = false

-- A text's methods are those of `string`, as it came.
function string_meta.__index(_, name)
  string_meta.__index = use("library")("string")
  return string_meta.__index[name]
end
string_meta.__metatable = false

encode, decode = kit.part("codec")(kit)
kit.encode, kit.decode = encode, decode
setmetatable(env, GLOBALS)
collect("restart")
if is_fleeting then collect("step", -FREE_KB) end  -- lowers what is owed to the collector: it begins that much later
return compile, begin, start, step, kill, empty, collect
