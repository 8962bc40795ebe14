-- Runs the tasks that a script has declared (library/tasks.lua): in order, or side by side as branches of the run.  Loaded
-- with the first run of a script that has some.  The chunk takes the runtime and returns a table of functions.
-- The daemon gets all tasks at the start (the op _tasks), and the end of each (_task), which is committed before any task
-- begins that could depend on it: after a crash the first tasks of the plan are recorded, without a gap.

local runtime = ...
local raw, env, internals, use = runtime.raw, runtime.env, runtime.internals, runtime.use
local now, traced, emit = internals.now, internals.traced, runtime.emit
local error, next, rawequal, rawget = raw.error, raw.next, raw.rawequal, raw.rawget
local select, type = raw.select, raw.type
local concat, unpack, format, sub = raw.table.concat, raw.table.unpack, raw.string.format, raw.string.sub
local floor, min = raw.math.floor, raw.math.min

local OUT_OF_MEMORY = "not enough memory"       -- Lua's own text
local LARGEST_OUTPUT = 65536                    -- bytes, packed; ops/tasks.py
local LONGEST_MESSAGE = 4096                    -- bytes, ops/tasks.py
local LONGEST_WAIT = 600000                     -- milliseconds, before another attempt
local ROWS = 1000                               -- recorded with one op
local NAMES = 20                                -- shown, of tasks that failed
local DRAWN = 300                               -- tasks of a plan that is kept with its run; ops/tasks.py
local LONGEST_CAUSE = 300                       -- bytes of a message in the reason of a run
local AT_ONCE = 400                             -- tasks: each may need two of the 1,000 branches of a run (branches.lua)

local workflows = {}

--
-- Calls of the script's functions
--

local function text_of(value) return use("ending").text_of(value) end

-- As pcall, with where it failed behind the value; memory that is short is the run's affair.
local function protect(f, ...)
  local run = now.run
  local function sort_out(ok, value, ...)
    if ok then return ok, value, ... end
    if value == OUT_OF_MEMORY then error(value, 0) end
    return false, value, false, run.frames
  end
  return sort_out(traced(run, f, ...))
end

-- The same with a limit: then it runs in a separate branch.
local function limited(limit_ms, f, ...)
  if not limit_ms then return protect(f, ...) end
  local function sort_out(ok, value, ...)
    if not ok and value == OUT_OF_MEMORY then error(value, 0) end
    return ok, value, ...
  end
  return sort_out(use("branches").attempt(limit_ms / 1000, f, ...))
end

local function complain(level, text, frames)
  local traceback = frames and use("trace").text(frames) or ""
  emit(level, traceback ~= "" and text .. "\n" .. traceback or text)
end

-- A hook: its error is logged, and stops nothing.
local function call_hook(label, limit_ms, f, ...)
  if not f then return nil end
  local ok, value, timed_out, frames = limited(limit_ms, f, ...)
  if ok then return value end
  complain("error", format("%s: %s", label, timed_out and "over its timeout" or text_of(value)), frames)
end

--
-- The results of a task
--

local function refuse(value, inside, depth)
  local kind = type(value)
  if kind == "table" then
    if rawequal(value, runtime.null) or rawequal(value, runtime.empty_array) then return nil end
    if inside[value] then return "its output holds a table that is inside itself" end
    if depth == 60 then return "its output is nested too deep" end
    inside[value] = true
    for key, item in next, runtime.frozen[value] or value do
      if type(key) == "table" then return "its output has a table as a key" end
      local reason = refuse(key, inside, depth + 1) or refuse(item, inside, depth + 1)
      if reason then return reason end
    end
    inside[value] = nil
  elseif kind == "function" or kind == "thread" or kind == "userdata" then
    return format("its output holds a %s", kind)
  end
end

-- Packed, or nil and why it can't be kept.
local function pack_output(value)
  local reason = refuse(value, {}, 0)
  if reason then return nil, reason end
  local packed = runtime.encode(value)
  if #packed > LARGEST_OUTPUT then
    return nil, format("its output has %d bytes, %d at most", #packed, LARGEST_OUTPUT)
  end
  return packed
end

local function message_of(value)
  if value == nil then return "" end
  local text = text_of(value)
  return #text > LONGEST_MESSAGE and sub(text, 1, LONGEST_MESSAGE - 3) .. "..." or text
end

-- What a command has returned, as one try: is it a success, its message, its output.
local function judge(...)
  local ok, message, output = ...
  if ok == nil and message ~= nil or ok == false then
    return { ok = false, message = message == nil and "returned false" or message_of(message) }
  end
  if type(ok) == "table" and select("#", ...) == 1 then ok, output = true, ok end
  if type(message) == "table" and output == nil then message, output = nil, message end
  local try = { ok = true, message = message_of(message), output = output }
  if output ~= nil then
    local packed, reason = pack_output(output)
    if not packed then return { ok = false, message = reason } end
    try.packed = packed
  end
  return try
end

-- Read raw: no metamethod of the script runs outside of its task.
local function says_unchanged(output)
  return type(output) == "table" and rawget(runtime.frozen[output] or output, "changed") == false
end

local function failure(value, timed_out, frames)
  return { ok = false, timed_out = timed_out, frames = frames,
    message = timed_out and "over its timeout" or message_of(value == nil and text_of(nil) or value) }
end

--
-- One task
--

-- `this.name` is a text, and `this:name()` works too: texts of tasks can be called with their task.
local called_by_name = raw.setmetatable({}, { __mode = "k" })
function internals.string_meta.__call(text, this)
  if type(this) == "table" and called_by_name[this] == text then return text end
  return internals.fail("attempt to call a string value")
end

local function new_this(course, definition)
  local this = {
    name = definition.name, workdir = definition.workdir or course.folder, workflow = course.name, attempt = 1,
    description = definition.description,
  }
  called_by_name[this] = definition.name
  return this
end

-- A command of the system, by `exec.run`.
local function execute(definition, this)
  local result, problem = env.exec.run(definition.executes, { workdir = definition.workdir })
  if not result then return false, problem end
  if not result.success then return false, format("exit code %s: %s", result.exit_code, result.stderr) end
  return true
end

local function command_of(definition)
  return definition.command or function(this) return execute(definition, this) end
end

local function inputs(course, definition)
  local input = {}
  for i = 1, #(definition.depends_on or {}) do
    local name = definition.depends_on[i]
    local packed = course.outcomes[name].packed
    if packed then input[name] = runtime.decode(packed)[1] end
  end
  return input
end

local function once(definition, this, params, input)
  if definition.pre_hook then
    local label = definition.label .. ": pre_hook"
    if call_hook(label, nil, definition.pre_hook, this, params, input) == false then
      return false, "pre_hook returned false"
    end
  end
  return command_of(definition)(this, params, input)
end

local function tried(ok, ...)
  if ok then return judge(...) end
  return failure(...)
end

local function given_to_hooks(definition, try)
  if try.ok then return try.output end
  return { error = try.message, task_name = definition.name }
end

local function attempt(definition, this, params, input)
  local try = tried(limited(definition.timeout_ms, once, definition, this, params, input))
  call_hook(definition.label .. ": post_hook", definition.timeout_ms, definition.post_hook, this, params,
    given_to_hooks(definition, try))
  return try
end

local FACTOR = {
  exponential = function(i) return 2.0 ^ (i - 1) end,
  linear = function(i) return i end,
  fixed = function() return 1 end,
}

local function wait_ms(definition, i)
  return floor(min(definition.retry_delay_ms * FACTOR[definition.mode](i), LONGEST_WAIT))
end

local function attempts(definition, this, params, input, progress)
  local most = definition.retries + 1
  for i = 1, most do
    this.attempt, progress.attempt = i, i
    local try = attempt(definition, this, params, input)
    if try.ok then return try, i end
    local ms = wait_ms(definition, i)
    if i == most then
      complain("error", format("%s failed: %s", definition.label, try.message), try.frames)
      return try, i
    end
    complain("warn", format("%s: attempt %d of %d failed: %s; the next in %.14g s", definition.label, i, most, try.message,
      ms / 1000), try.frames)
    if ms > 0 then runtime.call("sleep", ms) end
  end
end

-- `run_if` or `abort_if`: its result, or nil and the reason why there is none.
local function ask(definition, key, this, params, input)
  local ok, value, timed_out, frames = limited(definition.timeout_ms, definition[key], this, params, input)
  if ok then return value and true or false end
  local message = format("%s: %s", key, timed_out and "over its timeout" or message_of(value))
  complain("error", format("%s failed: %s", definition.label, message), frames)
  return nil, message
end

local function hooked(definition, this, params, try)
  local given = given_to_hooks(definition, try)
  local name = try.ok and "on_success" or try.timed_out and definition.on_timeout and "on_timeout" or "on_failure"
  call_hook(format("%s: %s", definition.label, name), definition.timeout_ms, definition[name], this, params, given)
end

-- Gives why that failed, if it did.
local function copy_files(op, patterns)
  local ok, value = protect(runtime.call, op, patterns)
  if ok then return nil end
  emit("error", text_of(value))
  return message_of(value)
end

-- The agent whose keys positional state.* means in the branch being stepped: the task that it is of may be delegated.
local function present_agent()
  local run = now.run
  local branch = run.branches and run.branches.current
  while branch and branch.agent == nil do branch = branch.owner end
  if branch then return branch.agent end
  return run.agent
end

local HERE = { ["local"] = true, localhost = true }

-- It is carried out here all the same.
local function delegate(course, definition)
  local agent, all, run = definition.delegate_to, course.all, now.run
  if agent and (HERE[agent] or agent == all.agent) then agent = nil end
  if agent then
    runtime.agent = present_agent
    if not all.has_told then
      all.has_told = true
      emit("info", format("%s is delegated to %s: it runs here, with the state of that agent", definition.label, agent))
    end
  end
  local branch = run.branches and run.branches.current
  if branch and branch.owner then branch.agent = agent or false else run.agent = agent or false end
end

-- How a task ends whose dependencies are done: its outcome, as it is recorded.
local function perform(course, definition)
  local this, input = new_this(course, definition), inputs(course, definition)
  local params = definition.params and use("copy").deep_copy(definition.params) or {}
  local progress = { attempt = 1 }
  course.under_way[definition.name] = progress
  if definition.delegate_to or runtime.agent then delegate(course, definition) end
  if definition.abort_if then
    local said, reason = ask(definition, "abort_if", this, params, input)
    if said then return { status = "failed", attempts = 0, message = "aborted by its abort_if", aborts = true } end
    if said == nil then return { status = "failed", attempts = 0, message = reason } end
  end
  if definition.run_if then
    local said, reason = ask(definition, "run_if", this, params, input)
    if said == false then
      return { status = "skipped", attempts = 0, message = "its run_if said no", by_condition = true }
    end
    if said == nil then return { status = "failed", attempts = 0, message = reason } end
  end
  local problem = definition.consumes and copy_files("_consume", definition.consumes)
  if problem then return { status = "failed", attempts = 0, message = problem } end
  local try, count = attempts(definition, this, params, input, progress)
  problem = try.ok and definition.artifacts and copy_files("_artifacts", definition.artifacts)
  if problem then try = { ok = false, message = problem } end
  hooked(definition, this, params, try)
  local status = not try.ok and "failed" or "success"
  if try.ok and says_unchanged(try.output) then status = "unchanged" end
  return { status = status, attempts = count, message = try.message, packed = try.packed }
end

--
-- The record
--

local function settle(course, definition, outcome)
  course.outcomes[definition.name], course.under_way[definition.name] = outcome, nil
  if outcome.status ~= "failed" then return end
  course.failed = course.failed + 1
  local all = course.all
  all.failed[#all.failed + 1] = definition.name
  all.cause = all.cause or outcome.message
  if outcome.aborts then all.aborted_by = all.aborted_by or definition.name end
  if outcome.aborts or course.stops then course.stopped_after = course.stopped_after or definition.name end
end

local function ordinal_of(course, definition) return course.ordinals[definition.name] end

-- Performs a task and has its end committed.
local function see_through(course, definition)
  local ordinal, began = ordinal_of(course, definition), runtime.clock()
  if course.all.is_watched then emit("task", format("%d", ordinal)) end
  local outcome = perform(course, definition)
  if now.run.agent then now.run.agent = false end
  outcome.took_ms = floor((runtime.clock() - began) * 1000 + 0.5)
  runtime.call("_task", ordinal, outcome.status, outcome.attempts, outcome.took_ms, outcome.message, outcome.packed)
  return outcome
end

-- Tasks that are not performed, with the reason, several in a commit.
local function flush(course)
  local skipped = course.skipped
  for first = 1, #skipped, ROWS do
    runtime.call("_tasks_skipped", { unpack(skipped, first, min(first + ROWS - 1, #skipped)) })
  end
  course.skipped = {}
end

local function skip(course, definition, reason)
  course.skipped[#course.skipped + 1] = { ordinal_of(course, definition), reason }
  settle(course, definition, { status = "skipped", attempts = 0, message = reason })
end

-- Why a task can't be performed, if it can't.
local function obstacle(course, definition)
  local all = course.all
  if all.aborted_by then return "aborted by " .. all.aborted_by end
  if course.stopped_after then return "stopped after " .. course.stopped_after end
  for i = 1, #(definition.depends_on or {}) do
    local name = definition.depends_on[i]
    local outcome = course.outcomes[name]
    if outcome.status == "failed" then return name .. " failed" end
    if outcome.status == "skipped" and not outcome.by_condition then return name .. " was skipped" end
  end
end

--
-- One workflow
--

local function one_by_one(course)
  for i = 1, #course.order do
    local definition = course.order[i]
    local taken = course.all.taken[ordinal_of(course, definition)]
    local reason = not taken and obstacle(course, definition)
    if taken then
      course.outcomes[definition.name] = taken
    elseif reason then
      skip(course, definition, reason)
    else
      flush(course)
      settle(course, definition, see_through(course, definition))
    end
  end
  flush(course)
end

-- How many dependencies each task waits for, and who waits for it.
local function waiters_of(course)
  local count, waiters = {}, {}
  for i = 1, #course.order do
    local definition = course.order[i]
    count[definition] = 0
    local seen = {}
    for j = 1, #(definition.depends_on or {}) do
      local name = definition.depends_on[j]
      if not seen[name] then
        seen[name], count[definition] = true, count[definition] + 1
        waiters[name] = waiters[name] or {}
        waiters[name][#waiters[name] + 1] = definition
      end
    end
  end
  return count, waiters
end

local function side_by_side(course)
  local count, waiters = waiters_of(course)
  local ready, first, last = {}, 1, 0           -- what may begin, in the order in which it came to that
  local group, launched, under_way = use("branches").group(), {}, 0
  local function add(definition)
    last = last + 1
    ready[last] = definition
  end
  local function ended(definition)
    for _, waiter in raw.ipairs(waiters[definition.name] or {}) do
      count[waiter] = count[waiter] - 1
      if count[waiter] == 0 then add(waiter) end
    end
  end
  -- What needs no branch ends at once, and may make others ready.
  local function start()
    while first <= last and under_way < course.at_once do
      local definition = ready[first]
      ready[first], first = nil, first + 1
      local taken = course.all.taken[ordinal_of(course, definition)]
      local reason = not taken and obstacle(course, definition)
      if taken then
        course.outcomes[definition.name] = taken
        ended(definition)
      elseif reason then
        skip(course, definition, reason)
        ended(definition)
      else
        flush(course)
        under_way = under_way + 1
        launched[group:launch(function() return see_through(course, definition) end)] = definition
      end
    end
  end
  for i = 1, #course.order do
    if count[course.order[i]] == 0 then add(course.order[i]) end
  end
  start()
  while under_way > 0 do
    local id, ok, outcome = group:next()
    under_way = under_way - 1
    if not ok then
      group:stop()
      error(outcome, 0)
    end
    settle(course, launched[id], outcome)
    ended(launched[id])
    start()
  end
  flush(course)
end

local function end_by_timeout(course)
  course.is_late = true
  local reason = format("%s is over its timeout", course.workflow.label)
  complain("error", reason)
  for i = 1, #course.order do
    local definition = course.order[i]
    local progress = course.under_way[definition.name]
    if progress then
      runtime.call("_task", ordinal_of(course, definition), "failed", progress.attempt, 0, reason)
      settle(course, definition, { status = "failed", attempts = progress.attempt, message = reason })
    end
  end
  course.all.late = course.all.late or reason
end

local function skip_the_rest(course, reason)
  for i = 1, #course.order do
    if not course.outcomes[course.order[i].name] then skip(course, course.order[i], reason) end
  end
  flush(course)
end

local function perform_all(course)
  local go = course.at_once > 1 and side_by_side or one_by_one
  if not course.workflow.timeout_ms then return go(course) end
  local ok, value, timed_out = limited(course.workflow.timeout_ms, go, course)
  if ok then return end
  if not timed_out then error(value, 0) end
  end_by_timeout(course)
  skip_the_rest(course, format("%s is over its timeout", course.workflow.label))
end

local function results_of(course)
  local results = {}
  for i = 1, #course.order do
    local name = course.order[i].name
    local outcome = course.outcomes[name]
    results[name] = {
      task = name, workflow = course.name, status = outcome.status, attempts = outcome.attempts, took_ms = outcome.took_ms or 0,
      message = outcome.message ~= "" and outcome.message or nil,
      output = outcome.packed and runtime.decode(outcome.packed)[1],
    }
  end
  return results
end

local function new_course(all, entry)
  local workflow, ordinals = entry.workflow, {}
  for i = 1, #entry.members do ordinals[entry.members[i].name] = entry.first + i - 1 end
  return {
    all = all, workflow = workflow, name = workflow.name, order = entry.order, ordinals = ordinals, folder = all.folder,
    at_once = min(workflow.at_once, AT_ONCE), stops = workflow.on_failure == "stop", outcomes = {}, under_way = {}, skipped = {}, failed = 0,
  }
end

local function carry_out(all, entry)
  local course = new_course(all, entry)
  local workflow = course.workflow
  if all.aborted_by then return skip_the_rest(course, "aborted by " .. all.aborted_by) end
  call_hook(workflow.label .. ": on_start", nil, workflow.on_start)
  perform_all(course)
  if workflow.on_complete then
    call_hook(workflow.label .. ": on_complete", nil, workflow.on_complete, course.failed == 0 and not course.is_late, results_of(course))
  end
end

--
-- The run
--

-- What an earlier run of the same chain has done, by ordinal.
local function taken_over(rows)
  local taken = {}
  for i = 1, #(rows or {}) do
    local ordinal, status, message, packed = unpack(rows[i], 1, 4)
    taken[ordinal] = {
      status = status, attempts = 0, message = message, packed = packed or nil, by_condition = status == "skipped",
    }
  end
  return taken
end

-- For each task of a workflow, the numbers of its dependencies, as text.
local function add_needs(needs, entry)
  local ordinals = {}
  for j = 1, #entry.members do ordinals[entry.members[j].name] = format("%d", entry.first + j - 1) end
  for j = 1, #entry.members do
    local numbers, before = {}, entry.members[j].depends_on or {}
    for k = 1, #before do numbers[k] = ordinals[before[k]] end
    needs[#needs + 1] = concat(numbers, " ")
  end
end

local function begin(plan, ctx)
  local names, needs = {}, {}
  for i = 1, #plan do
    for j = 1, #plan[i].members do
      names[#names + 1] = plan[i].workflow.name
      names[#names + 1] = plan[i].members[j].name
    end
    if plan.count <= DRAWN then add_needs(needs, plan[i]) end
  end
  local folder, agent, rows = runtime.call("_tasks", names, needs)
  local is_watched = ctx.trigger and ctx.trigger.type == "manual"
  return { folder = folder, agent = agent, taken = taken_over(rows), failed = {}, is_watched = is_watched }
end

local function summary(all, plan)
  local failed = all.failed
  if not failed[1] then return all.late end
  local cause = raw.string.match(all.cause or "", "[^\r\n]*")
  if #cause > LONGEST_CAUSE then                -- not cut within a character
    cause = raw.string.gsub(sub(cause, 1, LONGEST_CAUSE - 3), "[\192-\255][\128-\191]*$", "") .. "..."
  end
  local others = #failed > 1 and ", also " .. concat(failed, ", ", 2, min(#failed, NAMES)) or ""
  return format("%s%s%s%s (%d of %d %s)", failed[1], cause ~= "" and ": " .. cause or " failed", others,
    #failed > NAMES and ", ..." or "", #failed, plan.count, plan.count == 1 and "task" or "tasks")
end

-- Returns nothing, or nil and the reason of the run's failure; for a debug run, its plan.
function workflows.run(ctx)
  local plan = use("tasks").plan()
  if plan.count == 0 then
    emit("warn", "no task is declared: the run does nothing")
    return
  end
  if ctx.trigger and ctx.trigger.debug then return runtime.part("plan")(runtime)(plan) end
  local all = begin(plan, ctx)
  for i = 1, #plan do carry_out(all, plan[i]) end
  local reason = summary(all, plan)
  if reason then return nil, reason end
end

return workflows
