-- Defines what most of our files share, in the table `runtime`: ops, log lines, functions that load when called.  It loads
-- when one of these is first looked up there; a VM for a single request may never need it.
-- It puts its own functions into `runtime`, and returns find(name) -> what another file defines.

local runtime, internals = ...
local raw, use, host = runtime.raw, runtime.use, internals.host
local now, OP, restore = internals.now, internals.OP, internals.restore
local raise, select, type = raw.error, raw.select, raw.type
local find, format, sub, unpack = raw.string.find, raw.string.format, raw.string.sub, raw.table.unpack
local isyieldable, yield = raw.coroutine.isyieldable, raw.coroutine.yield

local LOG_LINE = 16384                                          -- bytes, wire.LOG_LINE
local PLAIN, PACKED, RAISE = 0, 1, 2                            -- wire.Form
local EMIT, CLOCK, SEED = 1, 2, 3                               -- the purposes of calls to the worker

-- Returns a function of another file, which loads when it is first called, even if a script keeps the function in a local.
function runtime.lazy(file, name)
  return function(...) return use(file)[name](...) end
end
runtime.bad_argument = runtime.lazy("failures", "bad_argument")

function runtime.clock() return host(CLOCK) end
function runtime.seed() return host(SEED) end

--
-- Ops
--

local MOST_PLAIN = 255                                          -- values that cross one by one
local SCALAR = { ["nil"] = true, boolean = true, number = true, string = true }

local function outgoing(...)
  local a, b, c = ...
  if not (SCALAR[type(a)] and SCALAR[type(b)] and SCALAR[type(c)]) then return PACKED, runtime.encode(...) end
  local count = select("#", ...)
  if count > MOST_PLAIN then return PACKED, runtime.encode(...) end
  for i = 4, count do
    if not SCALAR[type((select(i, ...)))] then return PACKED, runtime.encode(...) end
  end
  return PLAIN, ...
end

local function settle(form, ...)
  if now.killed then internals.stop() end
  if form == PLAIN then return ... end
  if form == RAISE then internals.fail((...)) end
  local values, count = runtime.decode((...))
  if form == PACKED then return unpack(values, 1, count) end
  raise(values[1], 0)
end

local function call(name, ...)
  if now.killed then internals.stop() end
  if not isyieldable() then internals.fail(use("failures").misplaced(name)) end
  if now.run.deferring then internals.fail(use("failures").misplaced(name, "a deferred function")) end
  return settle(yield(OP, name, outgoing(...)))
end
runtime.call = call

-- The names stay one text: a table of them would take memory in every VM.
function runtime.has_op(name) return find(runtime.ops, "\n" .. name .. "\n", 1, true) ~= nil end

function runtime.op(name)
  return function(...) return call(name, ...) end
end

-- Sends one line to the daemon's log.  Waits while too many are under way; a kill ends the wait, hence the hook.
function runtime.emit(level, text)
  if #text > LOG_LINE then text = format("%s... (%d bytes cut)", sub(text, 1, LOG_LINE), #text - LOG_LINE) end
  if host(EMIT, level, text) ~= 0 then internals.hook() end
end

-- The file is not kept: most VMs use it once.
function runtime.compile(source, chunkname) return runtime.part("compile")(runtime).compile(source, chunkname) end

--
-- Members of `runtime` that other files define, found when they are first looked up
--

local FILES = {
  complete = "globals", load = "protected", pcall = "protected", setmetatable = "protected",
  null = "values", empty_array = "values", frozen = "values",
}

local names = {}

function names.find(name)
  local value
  if name == "ops" or name == "facts" or name == "variables" then value = internals.fetch(name)
  elseif name == "encode" then value = runtime.part("encode")(runtime)
  elseif FILES[name] then value = use(FILES[name])[name]
  else value = raw.rawget(runtime, name) end  -- this file has just put it there
  runtime[name] = value
  return value
end

return names
