-- The library `coroutine` for scripts.  An op that is called in a coroutine passes through to the daemon, and its answer
-- back; a kill passes through as well.  Loads when something of `coroutine` is first looked up; the chunk takes the runtime
-- and returns the functions.

local runtime = ...
local internals, raw = runtime.internals, runtime.raw
local now, waiting, OP, PARK, MAX_DEPTH = internals.now, internals.waiting, internals.OP, internals.PARK, internals.MAX_DEPTH
local add_frames, fail, hook, hooked, stop = internals.add_frames, internals.fail, internals.hook, internals.hooked, internals.stop
local sethook, unless_killed = internals.sethook, internals.unless_killed
local raise, rawequal, setmetatable, type, format = raw.error, raw.rawequal, raw.setmetatable, raw.type, raw.string.format
local close, create, resume, status = raw.coroutine.close, raw.coroutine.create, raw.coroutine.resume, raw.coroutine.status
local isyieldable, running, yield = raw.coroutine.isyieldable, raw.coroutine.running, raw.coroutine.yield

local RAISE = 2                                                 -- wire.Form
local OUT_OF_MEMORY = "not enough memory"                       -- Lua's own text

local own = setmetatable({}, { __mode = "k" })  -- suspended coroutine → how much of the depth along its chain is its own
local coroutines = {}

local function expect(kind, value, name, named)
  if type(value) ~= kind then fail(format("bad argument #1 to '%s' (%s expected)", name, named or kind)) end
end

local function back(co, d, ...)
  own[co] = now.depth - d - 1
  now.depth = d
  if now.killed then
    sethook(running(), hook, "", 1)
    stop()
  end
  return ...
end

local pump

local function again(co, ...)
  local d = now.depth
  now.depth = d + 1 + own[co]
  waiting[co] = nil
  return pump(co, d, resume(co, ...))
end

-- What passes is an op, or a wait for branches.  rawequal: a script's __eq must not decide what is an op.  An op that can't
-- pass fails in the coroutine, at the line that called it.
function pump(co, d, ok, first, ...)
  if ok and (rawequal(first, OP) or rawequal(first, PARK)) and status(co) == "suspended" then
    if not isyieldable() then return pump(co, d, resume(co, RAISE, runtime.use("failures").misplaced((...)))) end
    own[co] = now.depth - d - 1
    now.depth = d
    waiting[co] = true
    return again(co, yield(first, ...))
  end
  return back(co, d, ok, first, ...)
end

local function enter(co, ...)
  if waiting[co] then return false, "cannot resume non-suspended coroutine" end
  local d, inside = now.depth, own[co] or 0
  if d + 1 + inside >= MAX_DEPTH then fail("too many nested protected calls or coroutines") end
  now.depth, own[co] = d + 1 + inside, inside  -- its place is taken now: afterwards there may be no memory for one
  return pump(co, d, resume(co, ...))
end

-- For lack of memory the frames are not collected: the coroutine is kept, with its stack.
local function starved(co)
  now.starved = now.starved or co
  if runtime.closes then unless_killed(close(co)) end
  raise(OUT_OF_MEMORY, 0)
end

-- An error in a wrapped coroutine is raised again further out: its own frames are kept, for the traceback.
local function unwrap(co, ok, value, ...)
  if ok then return value, ... end
  if status(co) ~= "dead" then fail(value) end
  if value == OUT_OF_MEMORY then return starved(co) end
  local trail = now.run.trail
  local frames = trail and rawequal(trail.value, value) and trail.frames or {}
  add_frames(frames, co)
  local was_finished, last = close(co)
  if now.killed then stop() end
  if was_finished then fail(value) end
  now.run.trail = { value = last, frames = frames, co = co }
  raise(last, 0)
end

local function is_outermost() return rawequal(running(), now.run.co) end

function coroutines.create(f)
  expect("function", f, "create")
  return hooked(create(f))
end

function coroutines.resume(co, ...)
  expect("thread", co, "resume", "coroutine")
  return enter(co, ...)
end

function coroutines.wrap(f)
  expect("function", f, "wrap")
  local co = hooked(create(f))
  return function(...) return unwrap(co, enter(co, ...)) end
end

function coroutines.yield(...)
  if is_outermost() then fail("attempt to yield from outside a coroutine") end
  return yield(...)
end

function coroutines.status(co)
  expect("thread", co, "status", "coroutine")
  local is = status(co)
  return is == "suspended" and waiting[co] and "normal" or is
end

function coroutines.isyieldable() return isyieldable() and not is_outermost() end

function coroutines.running()
  local co = running()
  return co, is_outermost()
end

function coroutines.close(co)
  expect("thread", co, "close", "coroutine")
  local is = coroutines.status(co)
  if is ~= "suspended" and is ~= "dead" then fail(format("cannot close a %s coroutine", is)) end
  return unless_killed(close(co))
end

return coroutines
