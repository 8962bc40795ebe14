-- Branches: functions of one run that are under way at once, each in a separate coroutine.  A branch is resumed straight
-- from a step, never by another coroutine, so that a limit has one coroutine to arm.  It can be ended alone: it is then not
-- resumed any more, so nothing in it can hold that up.  Loads when a script or another file of ours first calls one of these.
-- The chunk takes the runtime and the internals.  It returns the functions that scripts call (parallel, parallel_map), that
-- other files of ours call (group, attempt, timed), and that the worker calls (turn, next).
--
-- While a run has branches, run.branches has them, and run.co and run.depth are those of the branch that is being stepped,
-- or was last; the run's own coroutine is branch 0.  Each step goes through those that are ready, one after the other.

local runtime, internals = ...
local raw, use, host = runtime.raw, runtime.use, internals.host
local now, runs, PARK, hook, sethook = internals.now, internals.runs, internals.PARK, internals.hook, internals.sethook
local add_frames, fail, new_coroutine, stop = internals.add_frames, internals.fail, internals.new_coroutine, internals.stop
local restore = internals.restore
local next, pcall, raise, rawequal, select, type = raw.next, raw.pcall, raw.error, raw.rawequal, raw.select, raw.type
local xpcall = raw.xpcall
local find, format, floor, min, max = raw.string.find, raw.string.format, raw.math.floor, raw.math.min, raw.math.max
local number_type, pack, remove, unpack = raw.math.type, raw.table.pack, raw.table.remove, raw.table.unpack
local isyieldable, running, yield = raw.coroutine.isyieldable, raw.coroutine.running, raw.coroutine.yield

local MOST, LIMIT = 1000, 10                                    -- branches of one run; of parallel_map unless it says otherwise
local LONGEST = 366 * 86400                                     -- seconds: more than any run lasts
local WHY, OVER, BEGAN, ENDED = 0, 4, 5, 6                      -- the purposes of calls to the worker
local STEP_TURN, STEP_WAIT = 5, 6                               -- the results of a step
local RAISE, OVER_TIMEOUT = 2, 6                                -- wire.Form; of wire
local OUT_OF_MEMORY = "not enough memory"                       -- Lua's own text

local TAKEN_FOR_OPTIONS = "^bad argument #2 to .*%(table expected, got number%)$" -- as by parallel_map(addresses, http_get)
local HAS_NUMBER = ", which gives it the number of its item as argument #2"

local branches = { OVER_TIMEOUT = "over its timeout" }

-- Returns where in a coroutine a value was raised: behind the frames of the branch or coroutine that it came from.
local function frames_of(run, co, value)
  local trail = run.trail
  return add_frames(trail and rawequal(trail.value, value) and trail.frames or {}, co)
end

--
-- Which are there, and which is to go on
--

local function enter(run)
  local own = { id = 0, co = run.co, address = format("%p", run.co), depth = 0 }
  run.branches = {
    own = own, current = own, live = {}, count = 0, asked = {},  -- asked: number of an op -> the branch that waits for it
    ready = {}, first = 1, after = 1, timers = {},
  }
  run.last_branch = run.last_branch or 0
  return run.branches
end

-- Lets the run continue without branches: unfinished ones are not resumed any more.
function branches.leave(run)
  local all = run.branches
  for id, branch in next, all.live do
    branch.ended, branch.group.live = true, 0
    if branch.is_known then host(ENDED, id, branch.last_op or 0) end
  end
  run.branches, run.co, run.depth = nil, all.own.co, all.own.depth
end

local function make_ready(all, branch)
  if branch.is_ready then return end
  branch.is_ready = true
  all.ready[all.after] = branch
  all.after = all.after + 1
end

local function take_ready(all)
  while all.first < all.after do
    local branch = all.ready[all.first]
    all.ready[all.first] = nil
    all.first = all.first + 1
    branch.is_ready = false
    if not branch.ended then return branch end
  end
  all.first, all.after = 1, 1
end

local function results_of(ok, ...)
  if ok then return ... end
  raise((...), 0)
end

-- `call` returns what the branch returns; the function is a parameter, so that no traceback shows it as a field of ours.
-- The call is protected only where something may have to be closed: on the way out of a dead coroutine that could not
-- call an op.
local function body()
  local branch = now.run.branches.current
  local group = branch.group
  if not runtime.closes then return group.call(branch.f, branch.index) end
  return results_of(restore(0, xpcall(group.call, function(value)
    if not now.killed then branch.frames = frames_of(now.run, running(), value) end
    return value
  end, branch.f, branch.index)))
end

-- Calls f; a kill that would come meanwhile comes right after it.  Raises what f raises.
local function unstoppably(f, ...)
  now.whole = true
  local ok, problem = pcall(f, ...)
  now.whole = false
  if not ok then raise(problem, 0) end
end

-- Makes a branch, which begins when its turn comes.  `seconds` may be nil.  A branch that asks for no op of its
-- own is announced to the daemon.
local function launch(run, owner, group, f, index, seconds)
  local all, co = run.branches, new_coroutine(body)
  local branch = {
    id = run.last_branch + 1, co = co, address = format("%p", co), depth = 0, owner = owner, group = group, f = f, index = index,
  }
  run.last_branch, all.count, all.live[branch.id] = branch.id, all.count + 1, branch
  owner.children = owner.children or {}
  owner.children[branch.id] = branch
  group.live = group.live + 1
  if seconds and now.virtual then
    all.timers[#all.timers + 1] = { at = now.virtual + min(seconds, LONGEST), branch = branch, is_timeout = true }
    seconds = nil
  end
  if seconds or owner ~= all.own then
    branch.is_known, owner.is_known = true, true
    host(BEGAN, branch.id, owner.id, seconds and max(1, floor(min(seconds, LONGEST) * 1000)) or 0)
  end
  make_ready(all, branch)
end

-- Ends a branch, with all that it has launched: they are not resumed any more.
local function forget(all, branch)
  for _, child in next, branch.children or {} do forget(all, child) end
  all.live[branch.id], all.count, branch.ended = nil, all.count - 1, true
  branch.owner.children[branch.id] = nil
  branch.group.live = branch.group.live - 1
  if branch.asks then all.asked[branch.asks] = nil end
  if branch.is_known then host(ENDED, branch.id, branch.last_op or 0) end
end

local function forget_group(all, owner, group)
  for _, child in next, owner.children or {} do
    if child.group == group then forget(all, child) end
  end
end

-- Settles a branch that has ended by itself, or whose time is up.
local function finish(run, branch, ok, ...)
  local all, owner, group = run.branches, branch.owner, branch.group
  forget(all, branch)
  if group.settle(run, branch, ok, ...) and owner.waits == group then make_ready(all, owner) end
end

--
-- Failures
--

-- Returns the value as it is raised further out, and where it happened: of a script's function that left no frame behind,
-- where that function begins.
local function described(run, branch, value)
  local frames = branch.frames or frames_of(run, branch.co, value)
  if frames[1] or value == OUT_OF_MEMORY then return value, frames end
  local trace = use("trace")
  frames = trace.definition(branch.f) or frames
  if type(value) == "string" and not find(value, "^[^\n]-:%d+: ") then value = trace.position(frames) .. value end
  return value, frames
end

local function time_out(run, branch)
  local stopped = run.stopped
  finish(run, branch, false, branches.OVER_TIMEOUT, true, stopped and stopped.frames or add_frames({}, branch.co))
end

local function raise_with(frames, value)
  now.run.trail = { value = value, frames = frames }
  raise(value, 0)
end

--
-- Steps
--

local function end_overdue(run, all)
  local id = host(OVER, 0)
  while id ~= 0 do
    if all.live[id] then time_out(run, all.live[id]) end
    id = host(OVER, 0)
  end
end

-- Moves virtual time on to the first timer, if all branches wait for time.  Returns the branch that runs next.
local function move_time(run, all)
  while not next(all.asked) do
    local timers, first = all.timers, nil
    for i = #timers, 1, -1 do
      if timers[i].branch.ended then
        remove(timers, i)
        first = first and first - 1
      elseif not first or timers[i].at <= timers[first].at then first = i end
    end
    if not first then return nil end
    local timer = remove(timers, first)
    if timer.at > now.virtual then
      now.untold = (now.untold or 0) + timer.at - now.virtual
      now.virtual = timer.at
    end
    if timer.is_timeout then time_out(run, timer.branch) else make_ready(all, timer.branch) end
    local branch = take_ready(all)
    if branch then return branch end
  end
end

local function go_on(run, all)
  end_overdue(run, all)
  run.stopped = nil
  local branch = take_ready(all) or now.virtual and move_time(run, all)
  if not branch then return STEP_WAIT, 0 end
  all.current, run.co, run.depth = branch, branch.co, branch.depth
  local is_alone = branch == all.own and all.count == 0
  if is_alone then run.branches = nil end
  return STEP_TURN, branch.id, branch.address, is_alone
end

-- Goes on with the next branch; the one that was stepped waits for its op of this number (0: none was stepped).
function branches.next(id, number)
  local run = runs[id]
  local all = run and run.branches
  if not all then return STEP_WAIT, 0 end
  now.run = run
  if number ~= 0 then
    local branch = all.current
    branch.depth, branch.asks, branch.last_op, branch.is_known = run.depth, number, number, true
    all.asked[number] = branch
  end
  return go_on(run, all)
end

-- Turns to the branch that waits for the op of this number, if it still does.
function branches.turn(id, number)
  local run = runs[id]
  local all = run and run.branches
  local branch = all and all.asked[number]
  if not branch then return STEP_WAIT, 0 end
  all.asked[number], branch.asks = nil, nil
  all.current, run.co, run.depth = branch, branch.co, branch.depth
  return STEP_TURN, branch.id, branch.address, false
end

-- Returns the result of a step that was no op.  `now.killed` may be for the run, or for a branch around the one stepped.
function branches.step_result(run, ok, ...)
  local all, killed = run.branches, now.killed
  local current = all.current
  current.depth = run.depth
  if ok and not killed and rawequal((...), PARK) then return go_on(run, all) end
  now.last_ended = current.co
  if current == all.own then
    branches.leave(run)
    return internals.step_result(run, ok, ...)
  end
  if killed and killed ~= OVER_TIMEOUT then return use("kills").kill(run.id, killed) end
  if killed then
    now.killed = nil
    end_overdue(run, all)
    if not current.ended then time_out(run, current) end
  elseif ok then
    finish(run, current, true, ...)
  else
    local value, frames = described(run, current, (...))
    finish(run, current, false, value, false, frames)
  end
  return go_on(run, all)
end

-- Says whether the branch being stepped is to end, or one that it is in.
local function is_over(all)
  local index, id = 1, host(OVER, 1)
  while all and id ~= 0 do
    local branch = all.current
    while branch do
      if branch.id == id then return true end
      branch = branch.owner
    end
    index = index + 1
    id = host(OVER, index)
  end
  return false
end

-- Returns why the branch being stepped must end, or 0: it may have been armed for another branch.  The hook is set back
-- first, since a branch that is to end from then on is armed again.
function branches.look_again()
  local co = running()
  sethook(co, hook, "", rawequal(co, now.run.co) and internals.main_count or internals.coroutine_count)
  local why = host(WHY)
  return why == OVER_TIMEOUT and not is_over(now.run.branches) and 0 or why
end

--
-- Launching, and waiting
--

function branches.check(name)
  if now.killed then stop() end
  if not isyieldable() then fail(use("failures").misplaced(name)) end
  if now.run.deferring then fail(use("failures").misplaced(name, "a deferred function")) end
end

local function check_room(count)
  local all = now.run.branches
  if (all and all.count or 0) + count > MOST then fail(format("more than %d functions under way in one run", MOST)) end
end

-- Tells the daemon how far virtual time has moved.  The first that goes on does so.
local function tell_time()
  local moved = now.untold
  now.untold = nil
  runtime.call("sleep", moved * 1000)
end

-- Waits until this branch is made ready.  With a C function of Lua in between that can't be: its group is then ended.
local function park(group, name)
  local run = now.run
  local form, message = yield(PARK, name)
  if now.killed then stop() end
  if now.untold then tell_time() end
  if form ~= RAISE then return end
  local all = run.branches
  unstoppably(forget_group, all, all.current, group)
  all.current.waits = nil
  if all.count == 0 then branches.leave(run) end
  fail(message)
end

local function wait(group, name, is_over)
  local owner = now.run.branches.current
  owner.waits = group
  while not is_over() do park(group, name) end
  owner.waits = nil
end

--
-- All of them, or the first failure
--

local function settle_item(run, branch, ok, value, _, frames)
  local group = branch.group
  if ok then
    group.results[branch.index] = value
    if group.following <= group.count then group.launch_next() end
  elseif not group.failure then
    group.following = group.count + 1
    group.failure = { value = value, frames = frames, index = branch.index }
    forget_group(run.branches, branch.owner, group)
  end
  return group.live == 0
end

local function perform_all(name, count, limit, call, f_of)
  local run, group = now.run, { live = 0, results = {}, following = 1, count = count, call = call, settle = settle_item }
  local at_once = min(limit, count)
  check_room(at_once)
  local owner = (run.branches or enter(run)).current
  function group.launch_next()
    local index = group.following
    group.following = index + 1
    launch(run, owner, group, f_of(index), index)
  end
  unstoppably(function()
    for _ = 1, at_once do group.launch_next() end
  end)
  wait(group, name, function() return group.live == 0 end)
  local failure = group.failure
  if not failure then return group.results end
  local value = failure.value
  if type(value) == "string" and value ~= OUT_OF_MEMORY then
    local remark = name == "parallel_map" and find(value, TAKEN_FOR_OPTIONS) and HAS_NUMBER or ""
    value = format("%s (function %d of %s%s)", value, failure.index, name, remark)
  end
  raise_with(failure.frames, value)
end

function branches.parallel(...)
  branches.check("parallel")
  local count = select("#", ...)
  if count > MOST then fail(format("parallel: %d functions, at most %d can be under way at once", count, MOST)) end
  local functions = { ... }
  for i = 1, count do
    if type(functions[i]) ~= "function" then runtime.bad_argument(i, "parallel", "function", functions[i]) end
  end
  if count == 0 then return end
  local results = perform_all("parallel", count, count,
    function(of) return (of()) end,
    function(index) return functions[index] end)
  return unpack(results, 1, count)
end

function branches.parallel_map(items, f, limit)
  branches.check("parallel_map")
  if type(items) ~= "table" then runtime.bad_argument(1, "parallel_map", "table", items) end
  if type(f) ~= "function" then runtime.bad_argument(2, "parallel_map", "function", f) end
  if limit == nil then limit = LIMIT end
  if type(limit) ~= "number" or limit % 1 ~= 0 or limit < 1 or limit > MOST then
    fail(format("bad argument #3 to 'parallel_map' (a whole number from 1 to %d expected)", MOST))
  end
  local count = #items
  if number_type(count) ~= "integer" then fail("bad argument #1 to 'parallel_map' (its length is no integer)") end
  if count < 1 then return {}, 0 end
  local results = perform_all("parallel_map", count, limit,
    function(of, index) return (of(items[index], index)) end,
    function() return f end)
  return results, count
end

--
-- One by one, for other files of ours
--

local groups = {}
local GROUP = { __index = groups }

local function call_f(f) return f() end

local function settle_one(_, branch, ok, ...)
  local group = branch.group
  group.after = group.after + 1
  group.ended[group.after - 1] = pack(branch.index, ok, ...)
  return true
end

-- Returns a new group, of functions that are launched one by one.  An error in one does not end the others.
function branches.group()
  return raw.setmetatable({ live = 0, launched = 0, ended = {}, first = 1, after = 1, call = call_f, settle = settle_one }, GROUP)
end

local function begin(group, f, seconds)
  local run = now.run
  check_room(1)
  local owner = (run.branches or enter(run)).current
  group.launched = group.launched + 1
  unstoppably(launch, run, owner, group, f, group.launched, seconds)
end

-- Launches f, which begins when its launcher next waits and has so many seconds, if any are given.  Returns its number in
-- the group.
function groups:launch(f, seconds)
  branches.check("launch")
  local is_first = not now.run.branches
  if not is_first then
    begin(self, f, seconds)
    return self.launched
  end
  enter(now.run)
  local own = now.run.branches.own
  make_ready(now.run.branches, own)  -- before the other: the worker only has to hear that there are branches now
  begin(self, f, seconds)
  park(self, "launch")
  return self.launched
end

-- Waits for the next function that ends.  Returns its number, true and all its results; or its number, false, the error,
-- whether its time was up, and the frames; or nil when none is under way.
function groups:next()
  if self.first == self.after then
    if self.live == 0 then return nil end
    wait(self, "next", function() return self.first < self.after end)
  end
  local ended = self.ended[self.first]
  self.ended[self.first] = nil
  self.first = self.first + 1
  return unpack(ended, 1, ended.n)
end

-- Ends all that are under way.
function groups:stop()
  local all = now.run.branches
  if all then unstoppably(forget_group, all, all.current, self) end
end

local function without_number(_, ...) return ... end

-- Calls f(...) in a separate branch, with a limit in seconds.  Returns true and its results; or false, the error, whether its
-- time was up, and the frames.
function branches.attempt(seconds, f, ...)
  branches.check("attempt")
  local group, arguments = branches.group(), pack(...)
  begin(group, f, seconds)
  function group.call(of) return of(unpack(arguments, 1, arguments.n)) end
  return without_number(group:next())
end

local function results_or_raise(ok, ...)
  if ok then return ... end
  local value, _, frames = ...
  raise_with(frames, value)
end

-- As `attempt`, but raises the error.
function branches.timed(seconds, f, ...) return results_or_raise(branches.attempt(seconds, f, ...)) end

--
-- Virtual time
--

-- Waits until so much virtual time has passed.
function branches.sleep(seconds)
  local all = now.run.branches
  all.timers[#all.timers + 1] = { at = now.virtual + min(max(seconds, 0), LONGEST), branch = all.current }
  park(nil, "sleep")
end

return branches
