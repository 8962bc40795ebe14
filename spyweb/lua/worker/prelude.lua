-- The prelude runs first in a VM, in its real globals: it builds the script's own `_G` (`env`), makes host functions yield
-- to the daemon, keeps kills from being swallowed, runs the procedures that BEGIN names, and leaves nothing dangerous behind.
-- Loaded stripped, so that no frame of ours has a line: that is how tracebacks and positions tell ours from the script's.
--
-- What it holds to: an op passes through the script's coroutines and pcalls; a kill passes through everything; nothing
-- that a script yields is taken for an op or a result; what is counted belongs to a run and its chain, never to the VM.

local tick, emit, clock, part, packed_init, main_count, coroutine_count = ...
local ipairs = ipairs

local G = _G
local MAX_DEPTH = 150               -- of pcalls and coroutines; Lua has 200 C levels for a whole chain, and a kill needs some
local LOG_LINE, REASON = 16384, 4096                            -- bytes, wire.LOG_LINE
local PLAIN, PACKED, RAISE = 0, 1, 2                            -- wire.Form
local MEMORY = 6                                                -- wire.Ended
local OUT_OF_MEMORY = "not enough memory"                       -- Lua's own text
local WHY = { "cpu limit exceeded", "timed out", "cancelled", "stopped", OUT_OF_MEMORY }  -- by wire.Why
local ENDED = { 2, 3, 4, 5, MEMORY }                            -- wire.Ended by wire.Why
local TOLD_OP, TOLD_END, TOLD_AFTERMATH = 0, 1, 2               -- what a step tells the worker

local raw = {
  string = string, table = table, math = math, utf8 = utf8, coroutine = coroutine,
  os = { time = os.time, date = os.date, clock = os.clock, difftime = os.difftime },
}
for _, name in ipairs { "assert", "collectgarbage", "error", "getmetatable", "ipairs", "load", "next", "pairs", "pcall",
  "rawequal", "rawget", "rawlen", "rawset", "select", "setmetatable", "tonumber", "tostring", "type", "xpcall" } do
  raw[name] = G[name]
end

local raise, next, pcall, xpcall, select, type = error, next, pcall, xpcall, select, type
local rawequal, rawget, load, setmetatable, collect = rawequal, rawget, load, setmetatable, collectgarbage
local create, resume, yield, status = coroutine.create, coroutine.resume, coroutine.yield, coroutine.status
local running, isyieldable, close = coroutine.running, coroutine.isyieldable, coroutine.close
local getinfo, sethook = debug.getinfo, debug.sethook
local format, find, sub, unpack = string.format, string.find, string.sub, table.unpack
local string_meta = getmetatable("")

local OP = {}                       -- the first value of a yield that is an op; no script can come by it
local WEAK = { __mode = "k" }
local env = {}
local kit = { env = env, raw = raw, raise = raise, clock = clock, getinfo = getinfo }
local encode, decode
local server = false                -- in the server a deferred function may call ops

local runs = {}                     -- id → run
local current                       -- the run being stepped
local last_ended                    -- anchors the coroutine that ended last: a limit may be arming it at this moment
local killed                        -- why the step in progress must end (wire.Why); never outlives the step
local depth = 0                     -- of protected calls and coroutines along the chain now running
local own = setmetatable({}, WEAK)  -- suspended coroutine → how much of that depth is its own
local waiting = setmetatable({}, WEAK)  -- coroutines that wait for an op, and the runs' own: not the script's to resume

--
-- Where it happened
--

local trace

local function located()
  trace = trace or kit.part("trace")(kit)
  return trace
end

-- Raises at the line of the script that called us.
local function fail(message) raise(message, located().level()) end

-- Where memory or C stack are short there is no traceback, and that must not be what ends the run.
local function add_frames(lines, co)
  if pcall(located) then pcall(trace.add, lines, co) end
  return lines
end

--
-- Kills
--

-- Raises what ends the step.  Where it first did is kept: further out only the rest of the chain is to be seen.
local function stop()
  local run = current
  if run and not run.stopped then run.stopped = { co = running(), frames = add_frames({}, running()) } end
  raise(WHY[killed], 0)
end

local function hook()
  if not killed then
    local why = tick()
    if why == 0 then return end
    killed = why
  end
  stop()
end

local function hooked(co)
  sethook(co, hook, "", coroutine_count)
  return co
end

local function deeper(d)
  if d >= MAX_DEPTH then fail("too many nested protected calls or coroutines") end
  depth = d + 1
end

local function restore(d, ...)
  depth = d
  if killed then stop() end
  return ...
end

function env.pcall(f, ...)
  local d = depth
  deeper(d)
  return restore(d, pcall(f, ...))
end

function env.xpcall(f, handler, ...)
  local d = depth
  deeper(d)
  return restore(d, xpcall(f, function(value)
    if killed then return value end
    return handler(value)
  end, ...))
end

--
-- Coroutines of the script
--

local function expect(kind, value, name, named)
  if type(value) ~= kind then fail(format("bad argument #1 to '%s' (%s expected)", name, named or kind)) end
end

local function back(co, d, ...)
  own[co] = depth - d - 1
  depth = d
  if killed then
    sethook(running(), hook, "", 1)
    stop()
  end
  return ...
end

local pump

local function again(co, ...)
  local d = depth
  depth = d + 1 + own[co]
  waiting[co] = nil
  return pump(co, d, resume(co, ...))
end

-- rawequal: a script's __eq has no say in what is an op.
function pump(co, d, ok, first, ...)
  if ok and rawequal(first, OP) and status(co) == "suspended" then
    own[co] = depth - d - 1
    depth = d
    waiting[co] = true
    return again(co, yield(OP, ...))
  end
  return back(co, d, ok, first, ...)
end

local function enter(co, ...)
  if waiting[co] then return false, "cannot resume non-suspended coroutine" end
  local d, inside = depth, own[co] or 0
  if d + 1 + inside >= MAX_DEPTH then fail("too many nested protected calls or coroutines") end
  depth = d + 1 + inside
  return pump(co, d, resume(co, ...))
end

-- What went wrong in a wrapped coroutine is raised again further out: its own frames are kept, for the traceback.
local function unwrap(co, ok, value, ...)
  if ok then return value, ... end
  if status(co) ~= "dead" then fail(value) end
  local trail = current.trail
  local frames = trail and rawequal(trail.value, value) and trail.frames or {}
  add_frames(frames, co)
  local was_finished, last = close(co)
  if killed then stop() end
  if was_finished then fail(value) end
  current.trail = { value = last, frames = frames, co = co }
  raise(last, 0)
end

local function is_outermost() return rawequal(running(), current.co) end

env.coroutine = {}

function env.coroutine.create(f)
  expect("function", f, "create")
  return hooked(create(f))
end

function env.coroutine.resume(co, ...)
  expect("thread", co, "resume", "coroutine")
  return enter(co, ...)
end

function env.coroutine.wrap(f)
  expect("function", f, "wrap")
  local co = hooked(create(f))
  return function(...) return unwrap(co, enter(co, ...)) end
end

function env.coroutine.yield(...)
  if is_outermost() then fail("attempt to yield from outside a coroutine") end
  return yield(...)
end

function env.coroutine.status(co)
  expect("thread", co, "status", "coroutine")
  local is = status(co)
  return is == "suspended" and waiting[co] and "normal" or is
end

function env.coroutine.isyieldable() return isyieldable() and not is_outermost() end

function env.coroutine.running()
  local co = running()
  return co, is_outermost()
end

local function unless_killed(...)
  if killed then stop() end
  return ...
end

function env.coroutine.close(co)
  expect("thread", co, "close", "coroutine")
  local is = env.coroutine.status(co)
  if is ~= "suspended" and is ~= "dead" then fail(format("cannot close a %s coroutine", is)) end
  return unless_killed(close(co))
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
  if killed then stop() end
  if form == PLAIN then return ... end
  if form == RAISE then fail((...)) end
  local values, count = decode((...))
  if form == PACKED then return unpack(values, 1, count) end
  raise(values[1], 0)
end

local function call(name, ...)
  if killed then stop() end
  if not isyieldable() then
    fail(name .. " can't be called inside a table.sort comparator or a string.gsub callback")
  end
  if current.deferring and not server then fail(name .. " can't be called inside a deferred function") end
  return settle(yield(OP, name, outgoing(...)))
end
kit.call = call

local function op(name)
  return function(...) return call(name, ...) end
end

local function add_op(name)
  local at, holder = env, name
  local dot = find(name, ".", 1, true)
  while dot do
    local part_name = sub(holder, 1, dot - 1)
    at[part_name] = at[part_name] or {}
    at, holder = at[part_name], sub(holder, dot + 1)
    dot = find(holder, ".", 1, true)
  end
  at[holder] = op(name)
end

-- One line to the daemon's log.  Waits while too many are under way; a kill ends the wait, hence the hook.
function kit.emit(level, text)
  if #text > LOG_LINE then text = format("%s... (%d bytes cut)", sub(text, 1, LOG_LINE), #text - LOG_LINE) end
  if emit(level, text) ~= 0 then hook() end
end

--
-- What the script sees of the rest of Lua
--

for _, name in ipairs { "string", "table", "math", "utf8" } do
  local copy = {}
  for key, value in next, G[name] do copy[key] = value end
  env[name] = copy
end
env.string.dump = nil               -- bytecode is good for nothing here: load takes text only
for _, name in ipairs { "assert", "error", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget", "rawlen",
  "rawset", "select", "tonumber", "tostring", "type" } do
  env[name] = G[name]
end
env._G, env._VERSION = env, _VERSION

-- __gc is refused: no hook runs in a finalizer, so nothing could stop one.  __close may be had: it runs in a coroutine,
-- where hooks reach it.  __metatable too: nothing of ours asks a script's table for its metatable.
function env.setmetatable(object, meta)
  if type(meta) == "table" and rawget(meta, "__gc") ~= nil then fail("__gc is not available") end
  return setmetatable(object, meta)
end

function env.collectgarbage(option)
  return option == "count" and collect("count") or 0
end

-- Names the construct when what does not compile is Luau rather than Lua.
local function explained(source, chunk, message)
  if chunk or type(source) ~= "string" or type(message) ~= "string" then return chunk, message end
  return nil, kit.part("dialect")(kit)(source, message)
end

-- A byte order mark and a first line that begins with # are what editors and shells put there.
function kit.compile(source, chunkname)
  if sub(source, 1, 3) == "\xef\xbb\xbf" then source = sub(source, 4) end
  if sub(source, 1, 1) == "#" then source = "--" .. source end
  return explained(source, load(source, chunkname, "t", env))
end

function env.load(source, chunkname, mode, ...)
  if type(mode) == "string" and not find(mode, "t", 1, true) then
    return nil, format("attempt to load a text chunk (mode is '%s')", mode)
  end
  local globals = env
  if select("#", ...) > 0 then globals = (...) end
  if chunkname == nil then chunkname = type(source) == "string" and source or "=(load)" end
  return unless_killed(explained(source, load(source, chunkname, "t", globals)))
end

--
-- Steps
--

local function note_frames(value)
  local run = current
  if killed and run.frames then return value end
  local trail = run.trail
  local inner = killed and run.stopped or trail and rawequal(trail.value, value) and trail
  local frames = inner and inner.frames or {}
  if not inner or inner.co ~= running() then add_frames(frames, running()) end
  run.frames = frames
  return value
end

-- As pcall, and leaves the traceback of a failure in run.frames.
local function traced(run, f, ...)
  run.trail, run.frames = nil, nil
  return restore(0, xpcall(f, note_frames, ...))
end

local procedures, farewell, failed  -- of run.lua

local function body(run)
  local arguments, count = decode(run.arguments)
  run.arguments = nil
  run.procedure(run, unpack(arguments, 1, count))
  if run.ctx and run.ended ~= MEMORY then farewell(run) end
end

local function spawn(run, f)
  local co = create(f)
  sethook(co, hook, "", main_count)  -- registered; where it can be armed from outside, off
  waiting[co] = true
  run.co, run.depth = co, 0
  return format("%p", co)
end

local function begin(id, procedure, arguments)
  if not procedures[procedure] then raise("there is no procedure " .. procedure, 0) end
  local run = { id = id, procedure = procedures[procedure], arguments = arguments, defers = {}, deferred = 0 }
  runs[id] = run
  return spawn(run, body)
end

local function one_line(text)
  local newline = find(text, "\n", 1, true)
  return sub(text, 1, newline and newline < REASON and newline - 1 or REASON)
end

local function ended(run)
  last_ended = run.co
  runs[run.id] = nil
  return TOLD_END, run.ended, one_line(run.reason), run.traceback, run.packed, run.discard or false
end

-- After a kill or a memory error: hooks and deferred functions have a coroutine and a budget of their own.
local function rescue(run)
  run.discard, run.packed, run.deferring = true, nil, false
  if run.rescuing or not run.ctx then return ended(run) end
  if not (run.defers[1] or rawget(env, "on_error") or rawget(env, "on_finally")) then return ended(run) end
  run.rescuing, last_ended = true, run.co
  return TOLD_AFTERMATH, spawn(run, farewell), run.ended
end

local function end_killed(run)
  local why, frames = killed, run.frames or run.stopped and run.stopped.frames
  killed, run.frames, run.stopped = nil, nil, nil
  if run.rescuing then
    emit("error", format("%s: what followed the end of the run (on_error, on_finally, deferred functions) took too long\n%s",
      run.reason, located().text(frames)))
    return ended(run)
  end
  run.ended, run.reason, run.traceback = ENDED[why], located().position(frames) .. WHY[why], trace.text(frames)
  run.value = run.reason
  return rescue(run)
end

local function told(run, ok, first, ...)
  run.depth, depth = depth, 0
  if killed then return end_killed(run) end
  if ok and rawequal(first, OP) then return TOLD_OP, ... end
  if not ok and not run.rescuing then
    failed(run, first, nil)
    run.discard = true
  end
  if run.ended == MEMORY and not run.rescuing then return rescue(run) end
  return ended(run)
end

local function start(id)
  local run = runs[id]
  current, depth = run, 0
  return told(run, resume(run.co, run))
end

local function step(id, ...)
  local run = runs[id]
  current, depth = run, run.depth
  return told(run, resume(run.co, ...))
end

-- Ends a run that waits for an op.
local function kill(id, why)
  local run = runs[id]
  current, depth, killed = run, run.depth, why
  sethook(run.co, hook, "", 1)
  return told(run, resume(run.co))
end

--
-- The VM
--

local function compile(source, name)
  local message
  kit.script, message = kit.compile(source, "@" .. name)
  collect()                         -- a quarter of what there is by now was needed only once
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
  runs, current, last_ended, encode, decode, procedures, farewell = nil, nil, nil, nil, nil, nil, nil
  for key in next, kit do kit[key] = nil end
  collect()
end

local function furnish(packed)
  encode, decode = kit.part("codec")(kit)
  kit.encode, kit.decode = encode, decode
  kit.init = decode(packed)[1]
  server = kit.init.server
  for _, name in ipairs(kit.init.ops) do
    if sub(name, 1, 1) ~= "_" then add_op(name) end
  end
  procedures, farewell, failed = kit.part("run")(kit, {
    traced = traced, trace = located, fail = fail,
    check = function() if killed then stop() end end,
    current = function() return current end,
  })
  kit.part("library")(kit)
end

-- lupa looks up the global `debug` unprotected whenever it calls Lua: it must be there, and no table.
local loaded = package.loaded
for name in next, loaded do loaded[name] = nil end
for name in next, G do G[name] = nil end
G.debug = false
string_meta.__index, string_meta.__metatable = env.string, false

furnish(packed_init)
return compile, begin, start, step, kill, empty, collect
