-- The function require: the daemon finds and serves a module's source (the op _require), the VM compiles, runs and keeps it.
-- A module is kept under its name and its path, so that two spellings of one file are one module; one that failed is not
-- kept.  A load belongs to the coroutine that does it: a run abandoned half-way leaves nothing behind.  Other runs, and other
-- branches of the run, wait for it, so that the module is executed once.

local runtime = ...
local raw, env = runtime.raw, runtime.env
local now, runs = runtime.internals.now, runtime.internals.runs
local concat, format, running, status = raw.table.concat, raw.string.format, raw.coroutine.running, raw.coroutine.status
local error, find, rawget, setmetatable, type = raw.error, raw.string.find, raw.rawget, raw.setmetatable, raw.type

local by_name, by_path = {}, {}
local loading = setmetatable({}, { __mode = "k" })  -- coroutine -> { path, outer, run, branch } of the module that it loads
local loaders = setmetatable({}, { __mode = "v" })  -- path -> the coroutine that has begun to execute it last

local function chain_to(path, step)
  local names = { path }
  while step do
    names[#names + 1] = step.path
    if step.path == path then break end
    step = step.outer
  end
  for i = 1, #names // 2 do names[i], names[#names + 1 - i] = names[#names + 1 - i], names[i] end
  return concat(names, " -> ")
end

local function is_loading(path, step)
  while step do
    if step.path == path then return true end
    step = step.outer
  end
  return false
end

-- The run, or the branch of it, that asks.
local function caller() return now.run.branches and runtime.use("loads").caller() or now.run end

-- Marks the path as being loaded until the caller's scope ends, in any way.
local function mark(path)
  local thread = running()
  local outer = loading[thread]
  loading[thread], loaders[path] = { path = path, outer = outer, run = now.run, branch = caller() }, thread
  return setmetatable({}, { __close = function() loading[thread], loaders[path] = outer, nil end })
end

-- Returns the other run, or branch, that is executing it: one that failed, or was killed, has no such coroutine any more.
local function present_loader(path)
  local thread = loaders[path]
  local step = thread and status(thread) ~= "dead" and loading[thread]
  if not step or runs[step.run.id] ~= step.run or step.branch.ended == true or step.branch == caller() then return nil end
  return step.branch
end

local function execute(name, path, chunk)
  local _ <close> = mark(path)
  local value = chunk(name, path)
  if value == nil then value = true end
  if by_path[path] == nil then by_path[path] = value end
end

-- The globals that `require` returns where the project has no file of that name: sloth-runner's scripts ask for them so.
local LIBRARIES = " bit32 cdp coroutine crypto data engine exec file log math os state string table template utf8 Values values "
  .. "workflow "

-- Returns what there is without a file: the global, as the script may have replaced it.
local function without_file(name, reason)
  if find(LIBRARIES, " " .. name .. " ", 1, true) then
    local library = env[name]
    local kind = type(library)
    if kind == "table" and rawget(library, 1) == name then reason = name .. " is not part of this version"  -- a placeholder
    elseif kind == "table" or kind == "function" then return library end
  end
  local hint = runtime.use("absent").reason(name)
  runtime.internals.fail(hint and format("%s; %s", reason, hint) or reason)
end

local function require_module(name)
  if type(name) ~= "string" then runtime.bad_argument(1, "require", "string", name) end
  if by_name[name] ~= nil then return by_name[name] end
  local path, source = runtime.call("_require", name)
  if not path then return without_file(name, source) end
  if by_path[path] == nil then
    if is_loading(path, loading[running()]) then
      error(format("module '%s' requires itself: %s", name, chain_to(path, loading[running()])), 2)
    end
    local loader = present_loader(path)
    if loader and runtime.use("loads").is_awaited_by(caller(), loader) then
      error(format("module '%s' requires itself: a function that it waits for requires it", name), 2)
    end
    if loader then runtime.use("loads").wait(function() return present_loader(path) end) end
  end
  if by_path[path] == nil then
    local chunk, problem = runtime.compile(source, "@" .. path)
    if not chunk then error(format("error loading module '%s' from file '%s':\n\t%s", name, path, problem), 2) end
    execute(name, path, chunk)
  end
  by_name[name] = by_path[path]
  return by_path[path]
end

return { require = require_module }
