-- Makes a run wait for a file or module that another run in the same VM is still loading, until that run has loaded it or
-- given up.  Loads when a run first has to wait.  The chunk takes the runtime and returns a table of functions.
-- Runs look again and again: the daemon does not know of these loads, and a run that sleeps can be killed like any other.

local runtime = ...
local now, min = runtime.internals.now, runtime.raw.math.min

local FIRST, LONGEST = 5, 200       -- milliseconds between two looks

local loads = {}

-- Says whether `run` waits, perhaps by way of others, for `other`: then `other` must not wait for it.
local function waits_for(run, other)
  while run and run ~= other do run = run.awaits end
  return run == other
end

-- `loader` returns the run that is loading, if any: each time it may be another.
function loads.wait(loader)
  local run, ms = now.run, FIRST
  run.awaits = loader()
  while run.awaits and not waits_for(run.awaits, run) do
    runtime.call("sleep", ms)
    ms, run.awaits = min(ms * 2, LONGEST), loader()
  end
  run.awaits = nil
end

-- A run that has failed has ended: it does not execute the script any more.
local function present_loader() return runtime.loader and runtime.loader.ended == false and runtime.loader end

function loads.wait_for_script() loads.wait(present_loader) end

return loads
