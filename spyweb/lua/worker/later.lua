-- Functions whose files are large, or rarely needed by those who look them up: each loads when it is first called.
-- The chunk takes the kit and returns a function that makes the global of a name.

local kit = ...
local later = kit.later

return function(name)
  if name == "json_encode" then return later("json", "encode")
  elseif name == "json_decode" then return later("json", "decode")
  elseif name == "JSON_EMPTY_ARRAY" then return kit.empty_array
  elseif name == "dump" then return later("dump", "dump")
  elseif name == "require" then return later("modules", "require")
  elseif name == "defer" then return later("run", "defer") end
  return later("copy", name)
end
