-- Compiles files as a VM does, in a state that has nothing else in it (scratch.py).
-- The chunk takes the bytecode of compile.lua and returns compile(source, name) -> the reason why it does not compile.

local kit = { raw = _G, env = {}, border = {} }
local compile = load(..., "=?", "b")(kit).compile
local made = {}                     -- in a VM they would be there together

return function(source, name)
  local f, message = compile(source, "@" .. name)
  made[#made + 1] = f
  return message
end
