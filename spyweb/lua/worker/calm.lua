-- Runs before the prelude, so that nobody looks for garbage while that loads, which took 4 µs: there is next to none.

local is_fleeting = ...
local FREE_KB = 256                 -- that a VM for a single run may allocate before its garbage is looked for

if is_fleeting then
  collectgarbage("step", -FREE_KB)  -- lowers what is owed to the collector: it begins that much later
else
  collectgarbage("stop")            -- until the prelude is through
end
