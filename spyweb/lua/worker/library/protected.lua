-- Safe versions of Lua globals that a script could escape its limits by: pcall and the like must not swallow a kill, and a
-- finalizer could not be stopped.  Our own parts call them too (runtime.pcall).

local runtime, internals = ...
local raw, env, now, restore = runtime.raw, runtime.env, internals.now, internals.restore
local pcall, rawequal, rawget, type, xpcall = raw.pcall, raw.rawequal, raw.rawget, raw.type, raw.xpcall
local find, MAX_DEPTH, MAX_HANDLED = raw.string.find, internals.MAX_DEPTH, 5
local NIL_GLOBAL = "a nil value (global '"                      -- in a text of Lua's

local protected = {}

-- A script that shows a caught error also shows the hint about a name that is nil.
local function worded(value)
  return type(value) == "string" and find(value, NIL_GLOBAL, 1, true) and runtime.use("absent").explain(value) or value
end

-- As `restore`, which would be one call more in each loop of protected calls.
local function results(d, ok, ...)
  now.depth, now.starved = d, false
  if now.killed then internals.stop() end
  if ok then return ok, ... end
  return ok, worded((...))
end

local function deeper(d)
  if d >= MAX_DEPTH then internals.fail("too many nested protected calls or coroutines") end
  now.depth = d + 1
end

function protected.pcall(f, ...)
  local d = now.depth
  deeper(d)
  return results(d, pcall(f, ...))
end

-- Lua also calls the handler for an error in the handler: when that goes on, the first error is kept, which says more than
-- Lua's "error in error handling".
function protected.xpcall(f, handler, ...)
  local d, calls = now.depth, 0
  deeper(d)
  return restore(d, xpcall(f, function(value)
    calls = calls + 1
    if now.killed or calls > MAX_HANDLED then return value end
    return handler(worded(value))
  end, ...))
end

local function refuse_finalizer() internals.fail("__gc is not available") end

-- __gc is refused: no hook runs in a finalizer, so nothing could stop one.  Lua arms it by what the metatable holds at that
-- very moment: so between check and call nothing of the script may run, and the metatable is checked again afterwards.
-- __close is allowed: it runs in a coroutine, where hooks reach it.  __metatable too: our code never trusts its value, and
-- compares it by rawequal only.
function protected.setmetatable(object, meta)
  if rawequal(object, env) then runtime.complete() end
  if runtime.whole then runtime.whole(object) end
  if type(meta) ~= "table" then return raw.setmetatable(object, meta) end
  if rawget(meta, "__close") ~= nil then runtime.closes = true end
  if rawget(meta, "__gc") ~= nil then refuse_finalizer() end
  raw.setmetatable(object, meta)
  if rawget(meta, "__gc") ~= nil then
    raw.setmetatable(object, nil)
    refuse_finalizer()
  end
  return object
end

function protected.collectgarbage(option)
  return option == "count" and raw.collectgarbage("count") or 0
end

-- The file is not kept: most VMs use it once.
function protected.load(...) return runtime.part("compile")(runtime).load(...) end

return protected
