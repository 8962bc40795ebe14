-- What a run of tasks would do, for people: `spyweb debug`.  Nothing is run.  Loaded when somebody asks.
-- The chunk takes the runtime and returns describe(plan) -> a table of plain values.

local runtime = ...
local min = runtime.raw.math.min

local MOST = 300                                -- tasks that are described: a result has 64 KB
local SHOWN = { "run_if", "abort_if" }          -- conditions

-- Tasks that could begin together, step by step, as if all took the same time.
local function steps_of(order, at_once)
  local step_of, waits_for, waiters, ready = {}, {}, {}, {}
  for i = 1, #order do
    local definition, needs = order[i], order[i].depends_on or {}
    waits_for[definition] = #needs
    for j = 1, #needs do
      waiters[needs[j]] = waiters[needs[j]] or {}
      waiters[needs[j]][#waiters[needs[j]] + 1] = definition
    end
    if not needs[1] then ready[#ready + 1] = definition end
  end
  local first, step = 1, 0
  while first <= #ready do
    local last = min(first + at_once - 1, #ready)
    step = step + 1
    for i = first, last do
      step_of[ready[i]] = step
      local freed = waiters[ready[i].name] or {}
      for j = 1, #freed do
        waits_for[freed[j]] = waits_for[freed[j]] - 1
        if waits_for[freed[j]] == 0 then ready[#ready + 1] = freed[j] end
      end
    end
    first = last + 1
  end
  return step_of
end

local function describe_task(definition, step)
  local conditions = {}
  for i = 1, #SHOWN do
    if definition[SHOWN[i]] then conditions[#conditions + 1] = SHOWN[i] end
  end
  return {
    task = definition.name, step = step, depends_on = definition.depends_on, description = definition.description,
    conditions = conditions[1] and conditions, timeout_ms = definition.timeout_ms, at = definition.place,
    retries = definition.retries > 0 and definition.retries or nil,
  }
end

return function(plan)
  local shown, room = {}, MOST
  for i = 1, #plan do
    local workflow, order = plan[i].workflow, plan[i].order
    local at_once = min(workflow.at_once, #order)
    local step_of, tasks = steps_of(order, workflow.at_once), {}
    for j = 1, min(#order, room) do tasks[j] = describe_task(order[j], step_of[order[j]]) end
    room = room - #tasks
    shown[i] = {
      workflow = workflow.name, description = workflow.description, on_failure = workflow.on_failure,
      max_parallel_tasks = at_once, timeout_ms = workflow.timeout_ms, tasks = tasks,
      more = #order > #tasks and #order - #tasks or nil,
    }
  end
  return { plan = shown }
end
