-- log and print: kit.emit cuts what is too long.
-- The chunk takes the kit and returns a function that makes the global of a name.

local kit = ...
local raw, emit, text_of = kit.raw, kit.emit, kit.use("tostring")()
local concat, select, type = raw.table.concat, raw.select, raw.type

local function logger(level)
  return function(...)
    local count = select("#", ...)
    local texts = { ... }
    for i = 1, count do
      local value = texts[i]
      if type(value) == "table" then texts[i] = kit.use("failures").text_of(value) else texts[i] = text_of(value) end
    end
    emit(level, concat(texts, "\t", 1, count))
  end
end

return function(name)
  if name == "print" then return logger("print") end
  local info = logger("info")
  return raw.setmetatable(
    { debug = logger("debug"), info = info, warn = logger("warn"), error = logger("error") },
    { __call = function(_, ...) return info(...) end }
  )
end
