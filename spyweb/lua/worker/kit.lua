-- What most of our parts need, and the price of a VM need not hold: ops, log lines, functions that load later.  Loaded when
-- one of these is first looked up in the kit.  The chunk takes the kit and what only a few parts may have; it puts its own
-- functions into the kit, and returns find(name) -> what another file of ours puts there.

local kit, border = ...
local raw, use, host = kit.raw, kit.use, border.host
local now, OP, restore = border.now, border.OP, border.restore
local raise, select, type = raw.error, raw.select, raw.type
local format, sub, unpack = raw.string.format, raw.string.sub, raw.table.unpack
local isyieldable, yield = raw.coroutine.isyieldable, raw.coroutine.yield

local LOG_LINE = 16384                                          -- bytes, wire.LOG_LINE
local PLAIN, PACKED, RAISE = 0, 1, 2                            -- wire.Form
local EMIT, CLOCK, SEED = 1, 2, 3                               -- what the worker is called for

-- A function of another file.  It stays good when a script keeps it in a local before that file is loaded.
function kit.later(file, name)
  return function(...) return use(file)[name](...) end
end
kit.bad_argument = kit.later("failures", "bad_argument")

function kit.clock() return host(CLOCK) end
function kit.seed() return host(SEED) end

--
-- Ops
--

local MOST_PLAIN = 255                                          -- values that cross one by one
local SCALAR = { ["nil"] = true, boolean = true, number = true, string = true }

local function outgoing(...)
  local a, b, c = ...
  if not (SCALAR[type(a)] and SCALAR[type(b)] and SCALAR[type(c)]) then return PACKED, kit.encode(...) end
  local count = select("#", ...)
  if count > MOST_PLAIN then return PACKED, kit.encode(...) end
  for i = 4, count do
    if not SCALAR[type((select(i, ...)))] then return PACKED, kit.encode(...) end
  end
  return PLAIN, ...
end

local function settle(form, ...)
  if now.killed then border.stop() end
  if form == PLAIN then return ... end
  if form == RAISE then border.fail((...)) end
  local values, count = kit.decode((...))
  if form == PACKED then return unpack(values, 1, count) end
  raise(values[1], 0)
end

local function call(name, ...)
  if now.killed then border.stop() end
  if not isyieldable() then border.fail(use("failures").misplaced(name)) end
  if now.run.deferring then border.fail(use("failures").misplaced(name, "a deferred function")) end
  return settle(yield(OP, name, outgoing(...)))
end
kit.call = call

function kit.op(name)
  return function(...) return call(name, ...) end
end

-- One line to the daemon's log.  Waits while too many are under way; a kill ends the wait, hence the hook.
function kit.emit(level, text)
  if #text > LOG_LINE then text = format("%s... (%d bytes cut)", sub(text, 1, LOG_LINE), #text - LOG_LINE) end
  if host(EMIT, level, text) ~= 0 then border.hook() end
end

-- Not kept: it is used once for most VMs.
function kit.compile(source, chunkname) return kit.part("compile")(kit).compile(source, chunkname) end

--
-- What other files put into the kit
--

local kits = {}

function kits.find(name)
  if name == "ops" or name == "facts" then kit[name] = border.fetch(name)
  elseif name == "encode" then kit.encode = kit.part("encode")(kit)
  elseif name == "complete" then kit.complete = use("globals").complete
  elseif name == "pcall" or name == "setmetatable" or name == "load" then use("protected")
  elseif name == "null" or name == "empty_array" or name == "frozen" then use("sentinels") end
  return raw.rawget(kit, name)
end

return kits
