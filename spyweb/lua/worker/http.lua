-- The ops for HTTP, whose responses have headers to be read in any case.
-- The chunk takes the kit and returns a function that makes the global of a name, if there is such an op.

local kit = ...
local find = kit.raw.string.find

return function(name)
  if not find(kit.ops, "\n" .. name .. "\n", 1, true) then return nil end
  local op = kit.op(name)
  return function(...) return kit.use("headers").with_headers(op(...)) end
end
