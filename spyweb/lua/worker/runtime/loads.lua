-- Makes a run wait for a file or module that another run in the same VM is still loading, until that run has loaded it or
-- given up; or a branch for another branch.  Loads when one first has to wait, or a branch requires a module.  The chunk
-- takes the runtime and returns a table of functions.
-- Runs poll: the daemon does not know of these loads, and a run that sleeps can be killed like any other.

local runtime = ...
local now, min = runtime.internals.now, runtime.raw.math.min

local FIRST, LONGEST = 5, 200       -- milliseconds between two polls

local loads = {}

-- Returns who asks: the run, or one of its branches.
function loads.caller()
  local run = now.run
  local branch = run.branches and run.branches.current
  return branch and branch.id ~= 0 and branch or run
end

-- Says whether it is `outer`, or a branch that `outer` waits for, perhaps by way of others.
function loads.is_awaited_by(caller, outer)
  while caller ~= outer do
    local owner = caller.owner
    if not owner or owner.waits ~= caller.group then return false end
    caller = owner.id == 0 and now.run or owner
  end
  return true
end

-- Says whether `one` waits, perhaps by way of others, for `other`: then `other` must not wait for it.
local function waits_for(one, other)
  while one and not loads.is_awaited_by(other, one) do one = one.awaits end
  return one ~= nil
end

-- `loader` returns who is loading, if anybody: each time it may be another.
function loads.wait(loader)
  local caller, ms = loads.caller(), FIRST
  caller.awaits = loader()
  while caller.awaits and not waits_for(caller.awaits, caller) do
    runtime.call("sleep", ms)
    ms, caller.awaits = min(ms * 2, LONGEST), loader()
  end
  caller.awaits = nil
end

-- A run that has failed has ended: it does not execute the script any more.
local function present_loader() return runtime.loader and runtime.loader.ended == false and runtime.loader end

function loads.wait_for_script() loads.wait(present_loader) end

return loads
