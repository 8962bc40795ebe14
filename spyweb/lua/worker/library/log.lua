-- The functions log and print.  runtime.emit cuts lines that are too long.

local runtime, internals = ...
local raw, emit, text_of = runtime.raw, runtime.emit, runtime.use("values").tostring
local concat, rawequal, select, type = raw.table.concat, raw.rawequal, raw.select, raw.type

local function logger(level)
  return function(...)
    local count = select("#", ...)
    local texts = { ... }
    for i = 1, count do
      local value = texts[i]
      if type(value) == "table" then texts[i] = runtime.use("failures").text_of(value) else texts[i] = text_of(value) end
    end
    emit(level, concat(texts, "\t", 1, count))
  end
end

local function refuse_index() internals.fail("attempt to index a function value") end

-- `log` is a function, as scripts written for SpyWeb expect, and its levels are fields of it.  In Lua all functions share
-- one metatable: it knows this one, and says of any other what Lua says.  No script can get hold of it.
local function new_log()
  local log = logger("info")
  local levels = { debug = logger("debug"), info = log, warn = logger("warn"), error = logger("error") }
  internals.set_type_metatable(log, {
    __metatable = false,
    __index = function(f, name)
      if not rawequal(f, log) then refuse_index() end
      return levels[name]
    end,
    __newindex = function(f, name, value)
      if not rawequal(f, log) then refuse_index() end
      levels[name] = value
    end,
  })
  return log
end

return { log = new_log(), print = logger("print") }
