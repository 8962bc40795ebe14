-- The procedures `tests` and `test`: list the test functions of a VM's files, and call one of them (lua/session.py says
-- how).  Loads when one is first begun.  The chunk takes the runtime and what procedures share.
-- When time is virtual, a sleep that the daemon answers at once moves os.time, os.date and os.clock on by as much; among
-- branches it is a timer of the run.

local runtime, shared = ...
local raw, env, internals, frozen = runtime.raw, runtime.env, runtime.internals, runtime.frozen
local concat, find, floor, format, gsub = raw.table.concat, raw.string.find, raw.math.floor, raw.string.format, raw.string.gsub
local next, rawequal, rawget, sort, sub = raw.next, raw.rawequal, raw.rawget, raw.table.sort, raw.string.sub
local tonumber, type = raw.tonumber, raw.type
local fail = internals.fail

local MOST_NAMES = 180000           -- bytes, less than wire.MOST_RESULT
local SHORT = 60                    -- bytes of a value that is shown in the first line
local LONG = 4096                   -- bytes of each value that are shown at all
local MAX_DEPTH = 100               -- of tables that are compared

--
-- Comparing
--

local compare

-- Returns where two tables differ, as the keys that lead there; nil when they don't.
local function compare_contents(left, right, path, compared)
  for key, value in next, left do
    path[#path + 1] = key
    if compare(value, rawget(right, key), path, compared) then return path end
    path[#path] = nil
  end
  for key in next, right do
    if rawget(left, key) == nil then
      path[#path + 1] = key
      return path
    end
  end
end

function compare(left, right, path, compared)
  if left == right then return nil end
  if type(left) ~= "table" or type(right) ~= "table" or #path >= MAX_DEPTH then return path end
  if rawequal(left, runtime.null) or rawequal(right, runtime.null) then return path end
  if compared[left] and compared[left][right] then return nil end
  compared[left] = compared[left] or {}
  compared[left][right] = true      -- tables inside themselves: equal unless something else differs
  return compare_contents(frozen[left] or left, frozen[right] or right, path, compared)
end

local function difference(left, right) return compare(left, right, {}, {}) end

--
-- Saying what differs
--

local function dump(value) return runtime.use("dump").dump(value) end

local function shown(value)
  local text = dump(value)
  return #text > LONG and format("%s... (%d bytes cut)", sub(text, 1, LONG), #text - LONG) or text
end

local function in_a_line(value)
  local text = dump(value)
  if #text <= SHORT and not find(text, "\n", 1, true) then return text end
  return type(value) == "table" and "a table" or sub(text, 1, SHORT) .. "..."
end

local function path_text(path)
  local keys = {}
  for i = 1, #path do
    local key = path[i]
    keys[i] = type(key) == "string" and find(key, "^[%a_][%w_]*$") and "." .. key or format("[%s]", in_a_line(key))
  end
  return concat(keys)
end

local function at(value, path)
  for i = 1, #path do value = rawget(frozen[value] or value, path[i]) end
  return value
end

-- Shows the values whole when the first line could not.
local function details(left, right)
  local are_plain = type(left) ~= "table" and type(right) ~= "table"
  if are_plain and #dump(left) <= SHORT and #dump(right) <= SHORT then return "" end
  return format("\n  left:  %s\n  right: %s", gsub(shown(left), "\n", "\n  "), (gsub(shown(right), "\n", "\n  ")))
end

local function with_message(message, text)
  return message ~= nil and format("%s: %s", type(message) == "string" and message or dump(message), text) or text
end

local function assert_eq(left, right, message)
  local path = difference(left, right)
  if not path then return end
  local text = format("%s is not equal to %s", in_a_line(at(left, path)), in_a_line(at(right, path)))
  if path[1] ~= nil then text = format("they differ at %s: %s", path_text(path), text) end
  fail(with_message(message, text .. details(left, right)))
end

local function assert_ne(left, right, message)
  if difference(left, right) then return end
  fail(with_message(message, format("both are %s%s", in_a_line(left), details(left, right))))
end

--
-- Virtual time
--

local function make_time_virtual()
  local os, sleep, now = env.os, env.sleep, internals.now
  local time, date, clock = os.time, os.date, os.clock
  now.virtual = 0
  local function virtual_time() return floor(time() + now.virtual) end
  function env.sleep(ms)
    local slept = tonumber(ms)
    if now.run.branches and slept and slept == slept then return runtime.use("branches").sleep(slept / 1000) end
    sleep(ms)
    now.virtual = now.virtual + slept / 1000
  end
  function os.time(when)
    if when == nil then return virtual_time() end
    return time(when)
  end
  function os.date(layout, when) return date(layout, when or virtual_time()) end
  function os.clock() return clock() + now.virtual end
end

--
-- Procedures
--

local function furnish(options)
  env.spyweb = { assert_eq = assert_eq, assert_ne = assert_ne }
  if options.routes then runtime.use("server").add_routes() end
  if options.virtual_time then make_time_virtual() end
  for name, value in next, options.globals or {} do env[name] = value end
end

-- The reason of a run is one line: the rest of an assertion's text goes before the traceback.
local function fail_test(run, text, traceback)
  shared.fail(run, text, find(text, "\n", 1, true) and format("%s\n%s", text, traceback) or traceback)
end

local function execute(run, options)
  local ctx = options.ctx or {}
  ctx.shared = {}
  shared.without_hooks(run, ctx)
  furnish(options)
  local ok, problem, traceback = shared.attempt(run, shared.execute, ctx)
  if not ok then fail_test(run, problem, traceback) end
  return ok, ctx
end

local function test_names()
  local names = {}
  for name, value in next, env do
    if type(name) == "string" and type(value) == "function" and find(name, "^test_") then names[#names + 1] = name end
  end
  sort(names)
  return names
end

local procedures = {}

function procedures.tests(run, options)
  if not execute(run, options) then return end
  local names = runtime.encode(test_names())
  if #names > MOST_NAMES then return fail_test(run, "too many tests: their names fill more than 180,000 bytes", "") end
  run.packed = names
  shared.succeed(run)
end

function procedures.test(run, name, options)
  local is_loaded, ctx = execute(run, options)
  if not is_loaded then return end
  local f = rawget(env, name)
  if type(f) ~= "function" then return fail_test(run, format("there is no test %s", name), "") end
  run.may_skip = true               -- for the `run` that it calls
  local ok, problem, traceback = shared.attempt(run, f, ctx)
  if not ok then return fail_test(run, problem, traceback) end
  shared.succeed(run)
end

return procedures
