-- What all checks share.  A condition is a Lua expression that sees the names of a result and the methods of texts, and
-- nothing else; it can change nothing.

local PAUSE_MS = 2000               -- before the second try; doubled before each further one
local MOST_SHOWN, MOST_NAMED, MOST_READ = 80, 6, 32
local TEXTS = { ip = true, rcode = true, issuer = true } -- of a result

local tests = {}                    -- condition -> its function, of an environment

local function compiled(text)
  local test, problem = tests[text], nil
  if test then return test end
  test, problem = load("return " .. text, "=expect")                   -- `a) or (b` is no expression
  if test then test, problem = load("return function(_ENV) return (" .. text .. "\n) end", "=expect") end
  if not test then return nil, problem:gsub("^expect:%d+: ", "") end
  tests[text] = test()
  return tests[text]
end

local function cut(text)
  local begin = text:sub(1, MOST_SHOWN):gsub("%c", " ")
  if #text > MOST_SHOWN then begin = begin:gsub("[\xc0-\xff]?[\x80-\xbf]*$", "", 1) .. "…" end
  return begin
end

local function shown(value)
  if value == nil then return "is missing" end
  if type(value) ~= "string" then return "is " .. tostring(value) end
  return ('is "%s"'):format(cut(value))
end

local function step(path, key)
  if type(key) ~= "string" then return ("%s[%s]"):format(path, tostring(key)) end
  key = cut(key)
  if key:find("^[%a_][%w_]*$") then return path .. "." .. key end
  return ('%s["%s"]'):format(path, key)
end

local function refuse() error("a condition changes nothing; == compares", 0) end

-- Returns a function that says whether a condition holds for these names, and if not, why.  A name whose value is a
-- function is computed when it is first used.
local function tester(names, known)
  local paths, met, count, missing = {}, {}, 0, nil    -- what the condition has read, in order

  -- Remembers a value by its path, and returns it; a table as one that can only be read.
  local function note(path, value)
    if value == nil then missing = path end
    if type(value) == "table" then
      return setmetatable({}, {
        __index = function(_, key) return note(step(path, key), value[key]) end,
        __len = function() return note("#" .. path, #value) end,
        __newindex = refuse, __metatable = false,
      })
    end
    if count < MOST_READ then
      count = count + 1
      paths[count], met[count] = path, value
    end
    return value
  end

  local env = setmetatable({}, {
    __index = function(_, name)
      local value = names[name]
      if value == nil and not known:find(" " .. name .. " ", 1, true) then error("there is no name " .. name, 0) end
      if type(value) == "function" then
        value = value()
        names[name] = value
      end
      return note(name, value)
    end,
    __newindex = refuse, __metatable = false,
  })

  return function(text)
    local test, problem = compiled(text)
    if not test then return false, text .. ": " .. problem end
    count, missing = 0, nil
    local ok, value = pcall(test, env)
    if ok and value then return true end
    text = text:gsub("%s+", " ")
    local facts, seen = {}, {}
    for i = 1, count do
      if not seen[paths[i]] and #facts < MOST_NAMED then facts[#facts + 1] = paths[i] .. " " .. shown(met[i]) end
      seen[paths[i]] = true
    end
    local read = table.concat(facts, ", ")
    if ok then return false, text .. " does not hold" .. (read == "" and "" or ": " .. read) end
    value = tostring(value):gsub("^expect:%d+: ", "")
    if missing and value:find("a? ?nil ") then return false, ("%s: %s is missing"):format(text, missing) end
    return false, ("%s: %s%s"):format(text, value, read == "" and "" or " (" .. read .. ")")
  end
end

-- What the run returns: the figures among the names that are known, and short texts that say whom it has asked.
local function figures(names, known, number)
  local found = { attempts = number > 1 and number or nil }
  for name in known:gmatch("%S+") do
    local value = names[name]
    local kind = type(value)
    local is_short = kind == "string" and TEXTS[name] and #value <= MOST_SHOWN
    if kind == "number" or kind == "boolean" or is_short then found[name] = value end
  end
  return found
end

-- A list in which `records["192.0.2.1"]` says whether that is in it.
function listed(list)
  local all = {}
  for i, item in ipairs(list or {}) do all[i], all[item] = item, true end
  return all
end

-- Asks the address, on a new connection: a kept one hides trouble of the name, the port and the certificate.
function fetch()
  local headers = { connection = "close" }
  for name, value in pairs(values.headers or {}) do headers[name] = value end
  local response, failure = http_request{
    url = values.url, method = values.method, headers = headers, body = values.body,
    timeout = values.timeout, max_body_size = values.max_body_size,
  }
  return response, failure and failure.error
end

-- Tries until all conditions hold, at most `confirm` times more.  once(conditions) returns names and, where something
-- failed, the reason; or nil and the reason.
function check(usual, known, once)
  local conditions, tries, reason = values.expect or usual, 1 + (values.confirm or 0), nil
  for number = 1, tries do
    if number > 1 then sleep(PAUSE_MS << (number - 2)) end
    local went, names, why = pcall(once, conditions)
    if not went then return nil, (tostring(names):gsub("^[^:]+:%d+: ", "")) end     -- a refusal: further tries are no use
    local ok, holds = names ~= nil, names and tester(names, known)
    reason = why
    for _, text in ipairs(ok and conditions or {}) do
      ok, reason = holds(text)
      if not ok then break end
    end
    if ok then return figures(names, known, number) end
    if names and why then reason = ("%s (%s)"):format(reason, why) end
  end
  return nil, tries > 1 and ("%s (%d tries)"):format(reason, tries) or reason
end
