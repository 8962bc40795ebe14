-- What a script declares: tasks and workflows, by builders or as tables.  Loads when one is first declared.
-- An unknown key or method is refused at its line; what needs the whole file (dependencies, cycles) is checked by plan(),
-- once the chunk has run to its end.  Errors name the line of the declaration.

local runtime, internals = ...
local raw, env, getinfo = runtime.raw, runtime.env, runtime.getinfo
local fail = internals.fail
local error, next, pcall, rawget, setmetatable, tonumber, type = raw.error, raw.next, raw.pcall, raw.rawget, raw.setmetatable, raw.tonumber, raw.type
local concat, sort = raw.table.concat, raw.table.sort
local find, format, lower, match, sub = raw.string.find, raw.string.format, raw.string.lower, raw.string.match, raw.string.sub
local abs, floor, max, min, math_type = raw.math.abs, raw.math.floor, raw.math.max, raw.math.min, raw.math.type

local OURS = "=?"                   -- the source of a stripped chunk
local MAX_LEVELS = 60               -- of the stack, searched for the line that declares
local MAX_TASKS = 10000             -- in one run, ops/tasks.py
local LONGEST_NAME = 200            -- bytes, ops/tasks.py
local LONGEST_MS = 36500 * 86400000 -- settings/units.py
local UNIT_MS = { w = 604800000, d = 86400000, h = 3600000, m = 60000, s = 1000, ms = 1 }
local UNITS = { week = "w", day = "d", hour = "h", min = "m", minute = "m", sec = "s", second = "s" }
local MODES = { exponential = true, linear = true, fixed = true }
local POLICIES = { stop = true, continue = true }

local defined, by_name = {}, {}     -- tasks, in the order of their definition, and by name
local workflows, workflow_by_name = {}, {}
local objects = setmetatable({}, { __mode = "k" })  -- a script's object -> its task or workflow
local is_reading = false            -- the older forms, once the chunk has been executed
local planned, is_closed = nil, false  -- what plan() gave; whether the file has been read to its end

local tasks = {}

--
-- Errors
--

local function file() return getinfo(runtime.script, "S").short_src end

-- The line of the script that is being executed; of what is read after that, its file.
local function here()
  for level = 3, MAX_LEVELS do
    local info = getinfo(level, "Sl")
    if not info then break end
    if info.what ~= "C" and info.source ~= OURS then return format("%s:%d", info.short_src, info.currentline) end
  end
  return file()
end

-- How many letters must be changed to make one word of the other.
local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local same = sub(a, i, i) == sub(b, j, j)
      diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, same and diagonal or diagonal + 1)
    end
  end
  return row[#b]
end

-- `; did you mean "retries"?`, of names that are keys of `known`.
local function nearest(word, known)
  if type(word) ~= "string" or #word > 40 then return "" end
  local best, least = nil, max(2, #word // 3) + 1
  for name in next, known do
    if type(name) == "string" and abs(#name - #word) < least then
      local changes = distance(lower(word), lower(name))
      if changes < least or changes == least and best and name < best then best, least = name, changes end
    end
  end
  return best and format('; did you mean "%s"?', best) or ""
end

local function shown(value) return type(value) == "string" and format("'%s'", sub(value, 1, 80)) or type(value) end

local function expect(value, expected, what)
  if type(value) == expected then return value end
  return fail(format("%s: a %s expected, got %s", what, expected, type(value)))
end

--
-- Values
--

local function name_of(value, what)
  if type(value) ~= "string" or value == "" then
    fail(format("%s: a name expected, got %s", what, value == "" and "an empty text" or type(value)))
  end
  if #value > LONGEST_NAME then fail(format("%s: the name is longer than %d bytes", what, LONGEST_NAME)) end
  return value
end

local function sum_of_parts(text)
  local ms, position = 0, 1
  while position <= #text do
    local number, unit, after = match(text, "^%s*([%d.]+)%s*(%a+)%s*()", position)
    local word = unit and lower(unit)
    local factor, count = word and UNIT_MS[UNITS[match(word, "^(.-)s?$")] or word], tonumber(number)
    if not (factor and count) then return nil end
    ms, position = ms + count * factor, after
  end
  return position > 1 and ms or nil
end

-- As durations in settings: a number of seconds, or "1h30m".  Gives milliseconds.
local function duration(value, what)
  local ms
  if type(value) == "number" then ms = value * 1000
  elseif type(value) == "string" then
    local seconds = match(value, "^%s*([%d.]+)%s*$")
    ms = seconds and (tonumber(seconds) or -1) * 1000 or sum_of_parts(value)
  end
  if not ms or ms ~= ms or ms < 0 or ms > LONGEST_MS then
    fail(format('%s: expected a number of seconds, or text such as "1h30m" or "250ms", not %s', what,
      type(value) == "number" and format("%.14g", value) or shown(value)))
  end
  return floor(ms + 0.5)
end

local function limit(value, what)
  local ms = duration(value, what)
  if ms == 0 then fail(what .. ": must be more than 0") end
  return ms
end

local function whole(value, least, most, what)
  local number = type(value) == "number" and (math_type(value) == "integer" and value or floor(value) == value and floor(value))
  if not number or number < least or number > most then
    fail(format("%s: a whole number from %d to %d expected, got %s", what, least, most,
      type(value) == "number" and format("%.14g", value) or shown(value)))
  end
  return number
end

local function word_of(value, known, expected, what)
  if known[value] then return value end
  return fail(format('%s: %s expected, got %s%s', what, expected, shown(value), nearest(value, known)))
end

-- Names of what may be one thing or a list: texts, or what task() gave.
local function add_names(list, value, what)
  local definition = objects[value]
  if definition and definition.is_task then value = definition.name end
  if type(value) ~= "table" or definition then
    list[#list + 1] = name_of(value, what)
    return
  end
  for i = 1, #value do
    local item = value[i]
    definition = objects[item]
    list[#list + 1] = name_of(definition and definition.is_task and definition.name or item, what)
  end
end

--
-- Tasks
--

local function functional(key)
  return function(definition, value) definition[key] = expect(value, "function", definition.label .. ": " .. key) end
end

local function textual(key)
  return function(definition, value) definition[key] = expect(value, "string", definition.label .. ": " .. key) end
end

local function listed(key)
  return function(definition, value)
    definition[key] = definition[key] or {}
    add_names(definition[key], value, definition.label .. ": " .. key)
  end
end

-- A text or an array is a command of the system.
local function set_command(definition, value)
  local kind, what = type(value), definition.label .. ": command"
  if objects[value] then fail(what .. ": a task is listed in a workflow, no other task runs it") end
  if kind == "string" or kind == "table" then
    definition.executes = value
  else
    definition.command = expect(value, "function", what)
  end
end

-- nil, as a missing value gives it, is nobody else.
local function set_delegate(definition, value)
  definition.delegate_to = value ~= nil and expect(value, "string", definition.label .. ": delegate_to") or nil
end

local function set_retries(definition, value, mode)
  local what = definition.label .. ": retries"
  if type(value) == "table" then value, mode = value[1], value[2] end
  definition.retries = whole(value, 0, 1000, what)
  if mode ~= nil then definition.mode = word_of(mode, MODES, '"exponential", "linear" or "fixed"', what) end
end

local task_keys = {
  description = textual "description", workdir = textual "workdir", delegate_to = set_delegate,
  command = set_command, run = set_command,
  params = function(definition, value) definition.params = expect(value, "table", definition.label .. ": params") end,
  depends_on = listed "depends_on", artifacts = listed "artifacts", consumes = listed "consumes",
  timeout = function(definition, value) definition.timeout_ms = limit(value, definition.label .. ": timeout") end,
  retries = set_retries,
  retry_delay = function(definition, value)
    definition.retry_delay_ms = duration(value, definition.label .. ": retry_delay")
  end,
  run_if = functional "run_if", abort_if = functional "abort_if",
  on_success = functional "on_success", on_failure = functional "on_failure", on_fail = functional "on_failure",
  on_timeout = functional "on_timeout", pre_hook = functional "pre_hook", post_hook = functional "post_hook",
}

local task_methods = { build = function(task) return task end }
local TASK = { __metatable = false, __name = "task" }

local function method_of(methods, object, name)
  local method = methods[name]
  if method then return method end
  return fail(format("%s has no method %s%s", objects[object].label, shown(name), nearest(name, methods)))
end

function TASK.__index(object, name) return method_of(task_methods, object, name) end

for key, set in next, task_keys do
  task_methods[key] = function(object, ...)
    local definition = objects[object]
    if not definition then fail(format("call %s with a colon: task:%s(...)", key, key)) end
    set(definition, ...)
    return object
  end
end

local function refuse_late(what)
  if is_closed then fail(what .. " belongs to the file itself: tasks can't be declared while they run") end
end

-- A task in the making; `given` says whose it is in errors.
local function new_task(name)
  refuse_late("task")
  if by_name[name] then
    fail(format("two tasks are named '%s': the first one is at %s", name, by_name[name].place))
  end
  if #defined >= MAX_TASKS then fail(format("more than %d tasks in one file", MAX_TASKS)) end
  local definition = {
    is_task = true, name = name, label = format("task '%s'", name), place = here(), retries = 0, mode = "exponential",
    retry_delay_ms = 1000,
  }
  local object = setmetatable({ name = name }, TASK)
  objects[object] = definition
  defined[#defined + 1], by_name[name] = definition, definition
  runtime.tasks = true
  return object, definition
end

-- The keys of a table, texts in their order, so that the same error comes each time.
local function keys_of(given)
  local keys, others = {}, false
  for key in next, given do
    if type(key) == "string" then keys[#keys + 1] = key else others = others or key end
  end
  sort(keys)
  return keys, others
end

local function from_table(given, name)
  if name == nil then name = rawget(given, "name") end
  local object, definition = new_task(name_of(name, "task"))
  local keys, other = keys_of(given)
  for i = 1, #keys do
    local key = keys[i]
    local set = task_keys[key]
    if set then set(definition, given[key])
    elseif key ~= "name" then
      fail(format("%s: unknown key %s%s", definition.label, shown(key), nearest(key, task_keys)))
    end
  end
  if other then fail(format("%s: unknown key of type %s", definition.label, type(other))) end
  if is_reading and definition.command then
    definition.place = format("%s:%d", definition.place, getinfo(definition.command, "S").linedefined)
  end
  return object, definition
end

function tasks.task(given)
  if type(given) == "table" and not objects[given] then return (from_table(given)) end
  return (new_task(name_of(given, "task")))
end

--
-- Workflows
--

local config_keys = {
  timeout = function(workflow, value) workflow.timeout_ms = limit(value, workflow.label .. ": timeout") end,
  max_parallel_tasks = function(workflow, value)
    workflow.at_once = whole(value, 1, 1000, workflow.label .. ": max_parallel_tasks")
  end,
  on_failure = function(workflow, value)
    workflow.on_failure = word_of(value, POLICIES, '"stop" or "continue"', workflow.label .. ": on_failure")
  end,
}

local function add_tasks(workflow, given)
  local what = workflow.label .. ": tasks"
  expect(given, "table", what)
  local entries = workflow.entries
  if objects[given] then
    entries[#entries + 1] = objects[given].name
    return
  end
  for i = 1, #given do
    local item = given[i]
    local definition = objects[item]
    if type(item) == "table" and not definition then _, definition = from_table(item) end
    entries[#entries + 1] = name_of(definition and definition.is_task and definition.name or item, what)
  end
  local keys = keys_of(given)
  for i = 1, #keys do
    local key = keys[i]
    local item = given[key]
    local definition = objects[item]
    if not definition then
      expect(item, "table", format("%s: %s", what, key))
      _, definition = from_table(item, item.name == nil and key or nil)
    end
    entries[#entries + 1] = definition.name
  end
end

local function set_config(workflow, given)
  expect(given, "table", workflow.label .. ": config")
  local keys = keys_of(given)
  for i = 1, #keys do
    local set = config_keys[keys[i]]
      or fail(format("%s: config: unknown key %s%s", workflow.label, shown(keys[i]), nearest(keys[i], config_keys)))
    set(workflow, given[keys[i]])
  end
end

local workflow_keys = {
  description = textual "description",
  version = function(workflow, value)
    if type(value) ~= "number" then expect(value, "string", workflow.label .. ": version") end
    workflow.version = value
  end,
  tasks = add_tasks, config = set_config, on_start = functional "on_start", on_complete = functional "on_complete",
}

local workflow_methods = { build = function(workflow) return workflow end }
local WORKFLOW = { __metatable = false, __name = "workflow" }

function WORKFLOW.__index(object, name) return method_of(workflow_methods, object, name) end

for key, set in next, workflow_keys do
  workflow_methods[key] = function(object, value)
    local workflow = objects[object]
    if not workflow then fail(format("call %s with a colon: workflow:%s(...)", key, key)) end
    set(workflow, value)
    return object
  end
end

local function new_workflow(name)
  refuse_late("workflow")
  name_of(name, "workflow")
  if workflow_by_name[name] then
    fail(format("two workflows are named '%s': the first one is at %s", name, workflow_by_name[name].place))
  end
  local workflow = { name = name, label = format("workflow '%s'", name), place = here(), entries = {}, at_once = 1, on_failure = "stop" }
  local object = setmetatable({ name = name }, WORKFLOW)
  objects[object] = workflow
  workflows[#workflows + 1], workflow_by_name[name] = workflow, workflow
  runtime.tasks = true
  return object, workflow
end

function tasks.define(name, given)
  local object, workflow = new_workflow(name)
  if given == nil then return object end
  expect(given, "table", workflow.label)
  local keys = keys_of(given)
  for i = 1, #keys do
    local key = keys[i]
    local set = workflow_keys[key]
      or key ~= "name" and fail(format("%s: unknown key %s%s", workflow.label, shown(key), nearest(key, workflow_keys)))
    if set then set(workflow, given[key]) end
  end
  return object
end

-- The older forms, in the order of the names of their groups.
local function read_group(global)
  local groups = rawget(env, global)
  if groups == nil then return end
  local keys, other = keys_of(expect(groups, "table", global))
  if other then fail(format("%s: a group's name expected, got a %s", global, type(other))) end
  for i = 1, #keys do tasks.define(keys[i], expect(groups[keys[i]], "table", format("%s: %s", global, keys[i]))) end
end

local function read_groups(global)
  is_reading = true
  local ok, problem = pcall(read_group, global)
  is_reading = false
  if not ok then error(format("%s: %s", file(), problem), 0) end
end

--
-- The plan
--

local function raise_at(definition, ...) error(definition.place .. ": " .. format(...), 0) end

-- The tasks of a workflow in its order, each once.
local function members_of(workflow)
  local members, is_member = {}, {}
  for i = 1, #workflow.entries do
    local name = workflow.entries[i]
    local definition = by_name[name]
    if not definition then
      raise_at(workflow, "%s lists the task '%s', and there is none%s", workflow.label, name, nearest(name, by_name))
    end
    if not is_member[name] then
      members[#members + 1], is_member[name] = definition, true
    end
  end
  return members, is_member
end

local function check(definition, workflow, is_member)
  if not (definition.command or definition.executes) then raise_at(definition, "%s has no command", definition.label) end
  for i = 1, #(definition.depends_on or {}) do
    local name = definition.depends_on[i]
    if not by_name[name] then
      raise_at(definition, "task '%s' depends on '%s', and there is no such task (%s -> %s)%s", definition.name, name,
        definition.name, name, nearest(name, by_name))
    elseif not is_member[name] then
      raise_at(definition, "task '%s' depends on '%s', which %s does not list (%s -> %s)", definition.name, name,
        workflow.label, definition.name, name)
    end
  end
end

local function raise_cycle(trail, definition)
  local names, first = {}, 1
  while trail[first].definition ~= definition do first = first + 1 end
  for i = first, #trail do names[#names + 1] = trail[i].definition.name end
  names[#names + 1] = definition.name
  if #names > 20 then names = { names[1], names[2], names[3], "...", names[#names - 1], names[#names] } end
  raise_at(definition, "these tasks depend on each other: %s", concat(names, " -> "))
end

-- Each task after its dependencies, else in the order of the list.  No recursion: a chain may be as long as there are tasks.
local function in_order(members)
  local order, state, trail = {}, {}, {}        -- state: 1 on the trail, 2 done
  for i = 1, #members do
    if not state[members[i]] then
      trail[1], state[members[i]] = { definition = members[i], looked_at = 0 }, 1
      while trail[1] do
        local top = trail[#trail]
        local names = top.definition.depends_on or {}
        if top.looked_at < #names then
          top.looked_at = top.looked_at + 1
          local needed = by_name[names[top.looked_at]]
          if state[needed] == 1 then raise_cycle(trail, needed) end
          if not state[needed] then
            trail[#trail + 1], state[needed] = { definition = needed, looked_at = 0 }, 1
          end
        else
          order[#order + 1], state[top.definition], trail[#trail] = top.definition, 2, nil
        end
      end
    end
  end
  return order
end

local function warn_of_unlisted(used)
  local names = {}
  for i = 1, #defined do
    if not used[defined[i].name] then names[#names + 1] = defined[i].name end
  end
  if names[1] then
    runtime.emit("warn", format("in no workflow, so not run: %s%s", concat(names, ", ", 1, min(#names, 10)), names[11] and ", ..." or ""))
  end
end

-- All that a run does: workflows, each with its tasks in an order in which they can run; every task of every workflow has a
-- number of its own, `ordinal`, from 0 on.
function tasks.plan()
  if planned then return planned end
  read_groups("ModernDSLs")
  read_groups("TaskDefinitions")
  is_closed = true
  local chosen = workflows
  if not workflows[1] then
    local names = {}
    for i = 1, #defined do names[i] = defined[i].name end
    chosen = { { name = "", label = "this file", place = file(), entries = names, at_once = 1, on_failure = "stop" } }
  end
  local plan, used = { count = 0 }, {}
  for i = 1, #chosen do
    local workflow = chosen[i]
    local members, is_member = members_of(workflow)
    for j = 1, #members do
      check(members[j], workflow, is_member)
      used[members[j].name] = true
    end
    plan[i] = { workflow = workflow, first = plan.count, members = members, order = in_order(members) }
    plan.count = plan.count + #members
  end
  if plan.count > MAX_TASKS then error(format("more than %d tasks in one run", MAX_TASKS), 0) end
  warn_of_unlisted(used)
  planned = plan
  return plan
end

function tasks.declares()
  return defined[1] ~= nil or workflows[1] ~= nil or rawget(env, "ModernDSLs") ~= nil or rawget(env, "TaskDefinitions") ~= nil
end

-- The chunk is executed again: its declarations before the failure are repeated.
function tasks.reset()
  defined, by_name, workflows, workflow_by_name, planned = {}, {}, {}, {}, nil
  is_closed = false
end

return tasks
