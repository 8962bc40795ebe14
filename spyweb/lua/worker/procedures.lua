-- The procedures that script jobs and endpoints don't need, by the file that has them, and what those files share.
-- Loaded when a BEGIN first names one.  The chunk takes the kit and returns find(name) -> procedure or nil.

local kit = ...
local type = kit.raw.type

local SUCCESS = 0                               -- wire.Ended

local FILES = { load = "cycle", cycle = "cycle", tests = "testing", test = "testing" }

local shared = {}

-- The files of the VM, in order.
function shared.execute(...)
  kit.script(...)
  local more = kit.more or {}
  for i = 1, #more do more[i](...) end
end

-- From now on no hook follows, whatever ends the run: only what is deferred.
function shared.without_hooks(run, ctx)
  run.ctx, run.announced, run.finished = ctx, false, true
end

function shared.succeed(run)
  run.ended, run.reason, run.traceback, run.ctx = SUCCESS, "", "", nil
end

local files = {}

return function(name)
  local file = type(name) == "string" and FILES[name]
  if not file then return nil end
  files[file] = files[file] or kit.part(file)(kit, shared)
  return files[file][name]
end
